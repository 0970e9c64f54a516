// The official client for JavaScript: node client.mjs FOLDER ADDRESS TOKEN STRANGER, where the folder's node_modules hold openai.
// It prints what it saw of the server at an address.
import {pathToFileURL} from 'node:url'

const [folder, address, token, stranger] = process.argv.slice(2)
const {default: OpenAI} = await import(pathToFileURL(folder + '/node_modules/openai/index.mjs'))
const as = apiKey => new OpenAI({apiKey, baseURL: address + '/openai/v1', maxRetries: 0})
const client = as(token)

// What a browser asks before it lets a page send a request to another origin.
const refused = new Set()
const asked = async (url, init) => {
  const names = [...new Headers(init.headers).keys()].filter(name => !['accept', 'user-agent'].includes(name))
  const {headers} = await fetch(url, {
    method: 'OPTIONS', headers: {origin: 'https://page.example', 'access-control-request-method': init.method, 'access-control-request-headers': names.join(',')},
  })
  const allowed = (headers.get('access-control-allow-headers') ?? '').toLowerCase().split(', ')
  names.filter(name => !allowed.includes(name)).forEach(name => refused.add(name))
  return fetch(url, init)
}
const page = new OpenAI({apiKey: token, baseURL: address + '/openai/v1', maxRetries: 1, organization: 'o', project: 'p', fetch: asked})

const ids = async client => (await client.models.list()).data.map(m => m.id)
const ask = (content, more = {}) => ({model: 'assistant', messages: [{role: 'user', content}], ...more})
const fails = async (call, member = 'code') => {
  try {
    await call()
  } catch (e) {
    return [e.constructor.name, e.status, e[member]]
  }
}

const whole = await client.chat.completions.create(ask('weather Rome'))
let text = '', finish, tokens
for await (const c of await client.chat.completions.create(ask('weather Rome', {stream: true, stream_options: {include_usage: true}}))) {
  text += c.choices[0]?.delta.content ?? ''
  finish = c.choices[0]?.finish_reason ?? finish
  tokens = c.usage?.total_tokens ?? tokens
}
let broken
try {
  for await (const c of await client.chat.completions.create(ask('break', {stream: true})));
} catch (e) {
  broken = e.constructor.name
}
await page.chat.completions.create(ask('hello'))
await page.chat.completions.stream(ask('hello')).finalContent()
console.log(JSON.stringify({
  refused: [...refused],
  models: await ids(client), strangers: await ids(as(stranger)),
  whole: [whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage.total_tokens],
  streamed: [text, finish, tokens], broken,
  missing: await fails(() => client.chat.completions.create({...ask('hello'), model: 'nobody'})),
  denied: await fails(() => as('nobody').chat.completions.create(ask('hello'))),
  tools: await fails(() => client.chat.completions.create(ask('hello', {tools: [{type: 'function', function: {name: 'f'}}]})), 'param'),
  failed: await fails(() => client.chat.completions.create(ask('break'))),
}))
