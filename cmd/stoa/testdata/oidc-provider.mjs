// An OpenID provider for TestOpenIDProvider and TestConsoleSignInAtProvider: node oidc-provider.mjs FOLDER, where the folder's
// node_modules hold it. It prints its address, grants tokens to programs (client_credentials) for any resource, and to people
// who sign in under any name at any address (the client "console"). It ends with its standard input.
import {generateKeyPairSync} from 'node:crypto'
import {createServer} from 'node:http'
import {pathToFileURL} from 'node:url'

const {Provider} = await import(pathToFileURL(process.argv[2] + '/node_modules/oidc-provider/lib/index.js'))

const key = (kid, alg, ...kind) => ({...generateKeyPairSync(...kind).privateKey.export({format: 'jwk'}), kid, alg, use: 'sig'})
const client = (client_id) => ({
  client_id, client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
})
// The tokens of people live so short that a test sees one renewed.
const people = {client_id: 'console', token_endpoint_auth_method: 'none', grant_types: ['authorization_code', 'refresh_token'], redirect_uris: ['http://127.0.0.1/'], response_types: ['code']}
const algorithms = {rsa: 'RS256', ec: 'ES256', ed: 'EdDSA'} // by the client's name
const claims = {
  ed: {roles: ['operator']},
  root: {roles: ['platform_operator']},
  acme: {roles: ['viewer'], tenant_id: 'acme'},
  console: {roles: ['developer']},
}

const server = createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [...['rsa', 'ec', 'ed', 'root', 'acme'].map(client), people],
    clientBasedCORS: () => true,
    ttl: {AccessToken: (_, token) => token.clientId === 'console' ? 5 : 3600},
    rotateRefreshToken: true,
    issueRefreshToken: (_, client) => client.clientId === 'console',
    jwks: {
      keys: [
        key('r', 'RS256', 'rsa', {modulusLength: 2048}),
        key('e', 'ES256', 'ec', {namedCurve: 'P-256'}),
        key('d', 'EdDSA', 'ed25519'),
      ],
    },
    scopes: ['openid', 'profile', 'agents:read'],
    extraTokenClaims: (_, token) => claims[token.clientId],
    features: {
      clientCredentials: {enabled: true},
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: 'profile agents:read', audience: resource, accessTokenFormat: 'jwt',
          jwt: {sign: {alg: algorithms[ctx.oidc.client.clientId] ?? 'RS256'}},
        }),
      },
    },
  })
  provider.Client.prototype.redirectUriAllowed = () => true
  server.on('request', provider.callback())
  console.log(issuer)
})
process.stdin.resume().on('end', () => process.exit())
