// A real browser with a page of a foreign origin, and one that the foreign name has been made to resolve to the server for:
// node pages.mjs FOLDER CHROMIUM PORT PAGE TASK CALL, where the server listens at PORT of this machine and PAGE is the port of the foreign
// page. Each tries to have the waiting call of a task approved, to start another, and to read. Its last line is what the pages saw.
import {pathToFileURL} from 'node:url'

const [folder, executablePath, port, away, task, call] = process.argv.slice(2)
const {chromium} = await import(pathToFileURL(folder + '/node_modules/playwright-core/index.mjs'))
const browser = await chromium.launch({executablePath, args: ['--no-sandbox', '--host-resolver-rules=MAP evil.example 127.0.0.1']})
const rpc = (method, params) => ({jsonrpc: '2.0', id: 1, method, params})
const said = text => ({message: {role: 'user', messageId: crypto.randomUUID(), parts: [{text}]}})
const tool = {name: 'assistant', arguments: {message: 'hello'}}
const init = {protocolVersion: '2025-11-25', capabilities: {}, clientInfo: {name: 'page', version: '1'}}

// tries has a page at address use the server at origin.
const tries = async (address, origin) => {
  const page = await browser.newPage()
  page.setDefaultTimeout(60000)
  const landed = await page.goto(address)
  const seen = {landed: landed.status()}
  await page.addScriptTag({path: new URL('page.js', import.meta.url).pathname})
  // run has a function of the page do its work, and says where one does not end.
  const run = (name, ...args) => Promise.race([
    page.evaluate(([name, args]) => globalThis.eval(name)(...args), [name, args]),
    new Promise((_, fail) => setTimeout(fail, 60000, new Error(`${name} ${args[0]} does not end`)).unref()),
  ])
  const approve = `${origin}/tasks/${task}/approve`
  seen.cards = (await run('ask', origin + '/agents', '')).status
  seen.read = [(await run('ask', origin + '/tasks', '')).status, (await run('ask', `${origin}/v1/agents/assistant/tasks`, '')).status]
  seen.blob = []
  for (const [path, body] of [
    ['/agents/assistant', rpc('message:send', {message: {role: 'user', parts: [{type: 'text', text: 'hello'}]}})],
    ['/v1/agents/assistant/message:send', said('hello')],
    ['/a2a/assistant/message:send', said('hello')],
    ['/mcp/assistant', rpc('initialize', init)],
    ['/mcp/assistant', rpc('tools/call', tool)],
    ['/openai/v1/chat/completions', {model: 'assistant', messages: [{role: 'user', content: 'hello'}]}],
    [`/tasks/${task}/approve`, {call_id: call}],
  ]) seen.blob.push((await run('post', origin + path, body)).status)
  seen.socket = await run('converse', origin + '/v1/agents/assistant/stream', [], 'hello')
  const source = await run('follow', `${origin}/v1/agents/assistant/tasks/${task}:subscribe?after=0`)
  await page.waitForFunction(i => { const s = globalThis.eval('followed')(i); return s.refused || s.states.length > 0 }, source, {polling: 20, timeout: 60000})
  seen.source = (await run('followed', source)).states.length > 0
  await run('form', approve, JSON.stringify({call_id: call}))
  await run('form', `${origin}/agents/assistant`, JSON.stringify(rpc('message:send', {message: {role: 'user', parts: [{type: 'text', text: 'hello'}]}})))
  await run('picture', `${origin}/v1/agents/assistant/tasks/${task}`)
  await run('blind', approve, {call_id: call})
  await page.close()
  return seen
}

const seen = {}
try {
  seen.foreign = await tries(`http://evil.example:${away}/`, `http://127.0.0.1:${port}`)
  seen.rebound = await tries(`http://evil.example:${port}/agents`, '')
} finally {
  await browser.close()
}
console.log(JSON.stringify(seen))
process.exit()
