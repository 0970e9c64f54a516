// The official client for JavaScript against the Responses API: node responses.mjs FOLDER ADDRESS TOKEN OPERATOR STRANGER, where
// the folder's node_modules hold openai. It prints what it saw of the server at an address.
import {pathToFileURL} from 'node:url'

const [folder, address, token, operator, stranger] = process.argv.slice(2)
const {default: OpenAI} = await import(pathToFileURL(folder + '/node_modules/openai/index.mjs'))
const as = apiKey => new OpenAI({apiKey, baseURL: address + '/openai/v1', maxRetries: 0})
const client = as(token), approver = as(operator)

const ask = (input, more = {}) => ({model: 'assistant', input, ...more})
const fails = async (call, member = 'code') => {
  try {
    await call()
  } catch (e) {
    return [e.constructor.name, e.status, e[member]]
  }
}
const types = r => r.output.map(item => item.type)

const whole = await client.responses.create(ask('weather Rome', {instructions: 'Be brief.', metadata: {a: 'b'}}))
const read = await client.responses.retrieve(whole.id)
let text = '', events = [], last
for await (const e of await client.responses.create(ask('weather Rome', {stream: true}))) {
  if (e.type === 'response.output_text.delta') text += e.delta
  if (events.at(-1) !== e.type) events.push(e.type)
  last = e
}
const helper = await client.responses.stream(ask('weather Rome')).finalResponse()
const next = await client.responses.create(ask('and now', {previous_response_id: whole.id}))
const question = await client.responses.create(ask('ask'))
const answer = await client.responses.create(ask('Rome', {previous_response_id: question.id}))
const background = await client.responses.create(ask('never', {background: true}))
const cancelled = await client.responses.cancel(background.id)

const waiting = await client.responses.create(ask('sum'))
const request = waiting.output.find(item => item.type === 'mcp_approval_request')
const decide = approve => ask([{type: 'mcp_approval_response', approval_request_id: request.id, approve}], {previous_response_id: waiting.id})
const denied = await fails(() => client.responses.create(decide(true)))
const approved = await approver.responses.stream(decide(true)).finalResponse()

const chat = await approver.chat.completions.create({model: 'assistant', messages: [{role: 'user', content: 'sum'}]})
const message = chat.choices[0].message
const decided = await approver.chat.completions.create({model: 'assistant', messages: [
  {role: 'user', content: 'sum'}, message, {role: 'tool', tool_call_id: message.tool_calls[0].id, content: JSON.stringify({approve: true})},
]})
const chatStream = await approver.chat.completions.stream({model: 'assistant', messages: [{role: 'user', content: 'sum'}]}).finalChatCompletion()
const failed = await client.responses.create(ask('break'))
let broken
for await (const e of await client.responses.create(ask('break', {stream: true}))) broken = e
console.log(JSON.stringify({
  whole: [whole.output_text, whole.status, types(whole), whole.usage.total_tokens, whole.metadata],
  read: [read.id === whole.id, read.output_text, types(read)],
  streamed: [text, events, last.response.output.length, last.response.usage.total_tokens],
  helper: [helper.output_text, types(helper)],
  next: [next.output_text, next.previous_response_id === whole.id],
  answer: [question.output_text, answer.output_text],
  cancelled: [background.status, cancelled.status, cancelled.id === background.id],
  waiting: [waiting.status, types(waiting), request.name, request.arguments, waiting.output_text],
  denied, approved: [approved.status, types(approved), approved.output[0].approval_request_id === request.id, approved.output_text],
  chat: [chat.choices[0].finish_reason, message.tool_calls[0].function.name, JSON.parse(message.tool_calls[0].function.arguments).tool, decided.choices[0].message.content],
  chatStream: [chatStream.choices[0].finish_reason, chatStream.choices[0].message.tool_calls[0].function.name],
  failed: [failed.status, failed.error.code], broken: [broken.type, broken.response.error.code],
  missing: await fails(() => client.responses.create({...ask('hello'), model: 'nobody'})),
  strange: await fails(() => as(stranger).responses.create(ask('hello', {previous_response_id: whole.id})), 'param'),
  stranger: await fails(() => as(stranger).responses.retrieve(whole.id)),
  tools: await fails(() => client.responses.create(ask('hello', {tools: [{type: 'function', name: 'f', parameters: {}, strict: true}]})), 'param'),
}))
