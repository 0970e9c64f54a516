// The official client for JavaScript: node client.mjs FOLDER CARD TOKEN STRANGER, where the folder's node_modules hold
// @a2a-js/sdk and @grpc/grpc-js. It reads the card at an address, tells one story over every version and binding that the card
// names, and prints for each what it saw.
import {pathToFileURL} from 'node:url'

const [folder, address, token, stranger] = process.argv.slice(2)
const load = path => import(pathToFileURL(folder + '/node_modules/' + path))
const {ClientFactory, JsonRpcTransportFactory, RestTransportFactory, DefaultAgentCardResolver} = await load('@a2a-js/sdk/dist/client/index.js')
const {GrpcTransportFactory} = await load('@a2a-js/sdk/dist/client/transports/grpc/index.js')
const {default: {InterceptingCall}} = await load('@grpc/grpc-js/build/src/index.js')

const as = token => (url, init = {}) => fetch(url, {...init, headers: {...init.headers, Authorization: 'Bearer ' + token}})
const overGRPC = token => ({
  legacyCompat: {enabled: true},
  grpcCallOptions: {
    interceptors: [(options, next) => new InterceptingCall(next(options), {
      start(metadata, listener, go) {
        metadata.set('authorization', 'Bearer ' + token)
        go(metadata, listener)
      },
    })],
  },
})

const cardOf = async token => JSON.parse((await (await as(token)(address)).text()).replaceAll('http://localhost:8080', new URL(address).origin))

async function connect(token, version, binding) {
  const options = {fetchImpl: as(token), legacyCompat: {enabled: true}}
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory(options), new RestTransportFactory(options), new GrpcTransportFactory(overGRPC(token))],
    cardResolver: new DefaultAgentCardResolver(options),
  })
  const card = await cardOf(token)
  const interfaces = card.supportedInterfaces.filter(i => i.protocolVersion === version && i.protocolBinding === binding)
  return factory.createFromAgentCard({...card, supportedInterfaces: interfaces})
}

const states = [, 'submitted', 'working', 'completed', 'failed', 'canceled', 'input_required', 'rejected', 'auth_required']
const state = task => states[task.status.state] ?? task.status.state
const text = message => (message?.parts ?? []).map(p => p.content?.$case === 'text' ? p.content.value : '').join('')
const part = content => ({content, metadata: undefined, filename: '', mediaType: ''})
const message = (content, more = {}) => ({
  message: {
    messageId: crypto.randomUUID(), contextId: '', taskId: '', role: 1, parts: [part(content)], metadata: undefined, extensions: [], referenceTaskIds: [], ...more,
  }, configuration: undefined, metadata: undefined, tenant: '',
})
const says = (value, more) => message({$case: 'text', value}, more)
const failure = async promise => {
  try {
    await promise
    return 'nothing went wrong'
  } catch (error) {
    return error.cause?.name ?? error.name
  }
}
const drain = async events => {
  for await (const event of events) void event
}

async function story(version, binding) {
  const seen = {version, binding}
  const client = await connect(token, version, binding)
  const done = await client.sendMessage(says('hello'))
  seen.send = [state(done), text(done.status.message)]

  const told = []
  let id
  for await (const {payload: {$case, value}} of client.sendMessageStream(says('weather Rome'))) {
    id ??= value.id
    told.push(`${$case} ${value.status ? state(value) : ''} ${text(value.status?.message)}`.trim())
  }
  seen.stream = [told[0], told.at(-1)]
  const task = await client.getTask({id, historyLength: 1, tenant: ''})
  seen.get = [state(task), String(task.history.length), text(task.history[0])]

  const asked = await client.sendMessage(says('ask'))
  const answered = await client.sendMessage(says('Rome', {taskId: asked.id, contextId: asked.contextId}))
  seen.ask = [state(asked), text(asked.status.message), state(answered), text(answered.status.message)]

  const held = await client.sendMessage(says('sum'))
  const question = held.status.message.parts.map(p => p.content.value).find(v => v.call_id)
  const decision = {type: 'tool_approval', call_id: question.call_id, decision: 'approve'}
  const approved = await client.sendMessage(message({$case: 'data', value: decision}, {taskId: held.id, contextId: held.contextId}))
  seen.approve = [state(held), state(approved), text(approved.status.message)]

  const waiting = await client.sendMessage(says('ask'))
  const events = client.resubscribeTask({id: waiting.id, tenant: ''})
  const first = (await events.next()).value.payload
  const cancelled = await client.cancelTask({id: waiting.id, tenant: '', metadata: undefined})
  const last = (await events.next()).value.payload
  seen.subscribe = [first.$case, state(first.value), state(cancelled), last.$case, state(last.value), String((await events.next()).done)]

  if (version === '1.0') {
    const page = await client.listTasks({tenant: '', contextId: '', status: 3, pageSize: 2, pageToken: '', historyLength: 0, includeArtifacts: false})
    seen.list = [String(page.tasks.length), page.totalSize > 2 ? 'some' : 'few', String(page.pageSize), page.nextPageToken ? 'more' : 'end']
  }
  const config = {
    tenant: '', taskId: waiting.id, id: 'told', url: 'https://receiver.invalid/told', token: 'token',
    authentication: {scheme: 'Bearer', credentials: 'secret'},
  }
  const set = await client.createTaskPushNotificationConfig(config)
  const read = await client.getTaskPushNotificationConfig({tenant: '', taskId: waiting.id, id: 'told'})
  const all = {tenant: '', taskId: waiting.id, pageSize: 0, pageToken: ''}
  const before = await client.listTaskPushNotificationConfig(all)
  await client.deleteTaskPushNotificationConfig({tenant: '', taskId: waiting.id, id: 'told'})
  const after = await client.listTaskPushNotificationConfig(all)
  const shown = c => [c.taskId === waiting.id, c.id, c.url, c.authentication?.scheme].join(' ')
  seen.push = [shown(set), shown(read), String(before.configs.length), String(after.configs.length)]
  const card = await client.getAgentCard()
  seen.card = [card.name, String(card.supportedInterfaces.length > 0), ...card.securityRequirements.flatMap(r => Object.keys(r.schemes))]
  for (const enabled of [false, true]) {
    const resolver = new DefaultAgentCardResolver({fetchImpl: as(token), legacyCompat: {enabled}})
    seen.card.push((await resolver.resolve(address, address)).name)
  }
  const other = await connect(stranger, version, binding)
  seen.errors = [
    await failure(client.getTask({id: '01a00000-0000-7000-8000-000000000000', tenant: ''})), await failure(client.cancelTask({id: done.id, tenant: '', metadata: undefined})),
    await failure(client.sendMessage(says('late', {taskId: done.id}))), await failure(other.getTask({id: waiting.id, tenant: ''})),
    await failure(drain(client.resubscribeTask({id: '01a00000-0000-7000-8000-000000000000', tenant: ''}))),
  ]
  return seen
}

for (const {protocolVersion: version, protocolBinding: binding} of (await cardOf(token)).supportedInterfaces) {
  console.log(JSON.stringify(await story(version, binding).catch(error => ({version, binding, broke: [String(error.stack)]}))))
}
