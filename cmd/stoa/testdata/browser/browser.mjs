// A real browser with pages of two origins, of which one may call the server: node browser.mjs FOLDER CHROMIUM SERVER PAGE STRANGER
// TOKEN OTHER, where the folder's node_modules hold playwright-core, and the tokens are of two apps. It asks for a restart of the
// server by the line "restart" and goes on when it reads a line. Its last line is what the pages saw.
import {createInterface} from 'node:readline'
import {pathToFileURL} from 'node:url'

const [folder, executablePath, server, home, stranger, token, other] = process.argv.slice(2)
const {chromium} = await import(pathToFileURL(folder + '/node_modules/playwright-core/index.mjs'))
const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]()
const agent = server + '/v1/agents/assistant'
const says = text => ({message: {messageId: text, role: 'user', parts: [{text}]}, configuration: {blocking: true}})

const browser = await chromium.launch({executablePath, args: ['--no-sandbox']})
const open = async address => {
  const page = await browser.newPage()
  await page.goto(address)
  // call has a function of the page do its work.
  const call = (name, ...args) => page.evaluate(([name, args]) => globalThis.eval(name)(...args), [name, args])
  // until waits for what a page has seen of a task.
  const until = async (i, what) => {
    await page.waitForFunction(([i, what]) => globalThis.eval(`(seen => ${what})`)(followed(i)), [i, what], {polling: 20, timeout: 60000})
    return call('followed', i)
  }
  return {call, until}
}
const seen = {}
try {
  const [mine, theirs] = await Promise.all([open(home), open(stranger)])

  seen.stream = await mine.call('stream', agent + '/message:stream', token, 'slow')
  seen.socket = await mine.call('converse', agent + '/stream', ['stoa.v1', 'bearer.' + token], 'hello')
  const done = await mine.call('ask', agent + '/message:send', token, says('hello'))
  seen.send = [done.task.status.state, Boolean(done.request)]
  seen.denied = [
    await mine.call('ask', agent + '/message:send', 'nobody', says('hello')), await mine.call('ask', `${agent}/tasks/${done.task.id}`, other),
  ].map(answer => [answer.status, answer.error.code])
  seen.badSocket = await mine.call('converse', agent + '/stream', ['bearer.nobody'], 'hello')

  const asked = await mine.call('ask', agent + '/message:send', '', says('ask'))
  const events = `${agent}/tasks/${asked.task.id}:subscribe?after=0`
  const source = await mine.call('follow', events)
  const before = await mine.until(source, 'seen.states.at(-1)?.endsWith("INPUT_REQUIRED")')
  console.log('restart')
  await lines.next()
  await mine.until(source, 'seen.opened === 2')
  await mine.call('ask', agent + '/message:send', '', {...says('Rome'), message: {...says('Rome').message, taskId: asked.task.id}})
  const after = await mine.until(source, 'seen.ended')
  const whole = await mine.until(await mine.call('follow', events), 'seen.ended')
  seen.source = {before: before.states.length, opened: after.opened, last: after.states.at(-1).split(' ')[1], states: after.states, whole: whole.states}

  const count = async () => (await mine.call('ask', agent + '/tasks?page_size=1', '')).totalSize
  const tasks = await count()
  seen.strangers = {
    ask: await theirs.call('ask', agent + '/message:send', token, says('hello')),
    read: await theirs.call('ask', agent + '/tasks', token),
    blind: await theirs.call('blind', agent + '/message:send', says('blind')),
    blindRPC: await theirs.call('blind', server + '/agents/assistant', {jsonrpc: '2.0', id: 1, method: 'message:send', params: says('blind')}),
    socket: await theirs.call('converse', agent + '/stream', ['stoa.v1', 'bearer.' + token], 'hello'),
    source: (await theirs.until(await theirs.call('follow', events), 'seen.refused')).opened,
    tasks: await count() - tasks,
  }
} finally {
  await browser.close()
}
console.log(JSON.stringify(seen))
process.exit()
