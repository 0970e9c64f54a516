// The official client for JavaScript: node client.mjs FOLDER ADDRESS TOKEN STRANGER, where the folder's node_modules hold openai.
// It prints what it saw of the server at an address.
import {pathToFileURL} from 'node:url'

const [folder, address, token, stranger] = process.argv.slice(2)
const {default: OpenAI} = await import(pathToFileURL(folder + '/node_modules/openai/index.mjs'))
const as = apiKey => new OpenAI({apiKey, baseURL: address + '/openai/v1', maxRetries: 0})
const client = as(token)

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
console.log(JSON.stringify({
  models: await ids(client), strangers: await ids(as(stranger)),
  whole: [whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage.total_tokens],
  streamed: [text, finish, tokens], broken,
  missing: await fails(() => client.chat.completions.create({...ask('hello'), model: 'nobody'})),
  denied: await fails(() => as('nobody').chat.completions.create(ask('hello'))),
  tools: await fails(() => client.chat.completions.create(ask('hello', {tools: [{type: 'function', function: {name: 'f'}}]})), 'param'),
  failed: await fails(() => client.chat.completions.create(ask('break'))),
}))
