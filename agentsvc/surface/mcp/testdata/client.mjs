// The official client for JavaScript: node client.mjs FOLDER ADDRESS TOKEN STRANGER, where the folder's node_modules hold
// @modelcontextprotocol/sdk. It prints what it saw of the server at an address.
import {pathToFileURL} from 'node:url'

const [folder, address, token, stranger] = process.argv.slice(2)
const sdk = file => import(pathToFileURL(folder + '/node_modules/@modelcontextprotocol/sdk/dist/esm/' + file))
const {Client} = await sdk('client/index.js')
const {StreamableHTTPClientTransport} = await sdk('client/streamableHttp.js')

const connect = async token => {
  const client = new Client({name: 'test', version: '1'})
  await client.connect(new StreamableHTTPClientTransport(new URL(address), {requestInit: {headers: {Authorization: 'Bearer ' + token}}}))
  return client
}
const call = (client, args, options) => client.callTool({name: 'assistant', arguments: args}, undefined, options)
const seen = r => [r.content[0].text, r.structuredContent?.state ?? null, r.isError]

const client = await connect(token)
const tools = (await client.listTools()).tools.map(t => t.name)
const progress = []
const answer = await call(client, {message: 'weather Rome'}, {onprogress: p => progress.push(p.message)})
const ask = await call(client, {message: 'ask'})
const task_id = ask.structuredContent.task_id
const other = await connect(stranger)
const strange = await call(other, {message: 'mine now', task_id})
const goesOn = await call(client, {message: 'Rome', task_id})

let gone, denied = false
const giveUp = new AbortController()
try {
  setTimeout(() => giveUp.abort(), 300)
  await call(client, {message: 'never'}, {signal: giveUp.signal})
} catch (e) {
  gone = 'AbortError'
}
try {
  await connect('nobody')
} catch (e) {
  denied = true
}
console.log(JSON.stringify({
  server: client.getServerVersion().name, tools, answer: seen(answer), progress, ask: seen(ask), goesOn: seen(goesOn), stranger: seen(strange), gone, denied,
}))
await client.close()
await other.close()
