// What the console shows when a server dies, a token is revoked, another app's token is used, and a tenant's texts look like markup: node
// console-trust.mjs FOLDER CHROMIUM URL SECRET USER STRANGER ATTACK PROBE, where SECRET is the admin secret, USER a token of ana of the
// app piper, whose model says "one " and ends its answer once a server has died, STRANGER a token of another app, ATTACK a text that would
// run in a page that reads it as HTML, and PROBE a token of the app probe, whose texts are ATTACK. It asks for the death of a server by the
// line "kill" and goes on when it reads a line. Its last line is what the pages showed.
import {createInterface} from 'node:readline'
import {start} from './console-pages.mjs'

const [folder, executablePath, url, secret, user, stranger, attack, probe] = process.argv.slice(2)
const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]()
const {open, signIn, visit, check, picture, shoot, finish, complaints} = await start({folder, executablePath, url})
const seen = {}
const say = async (page, text) => {
  await page.getByLabel('Message', {exact: true}).fill(text)
  await page.getByRole('button', {name: 'Send'}).click()
}
const lastTurn = page => page.locator('.turn').last()
const words = t => t.replace(/\s+/g, ' ').trim()
const steps = page => page.locator('.timeline > li').evaluateAll(all => all.map(li => li.innerText.replace(/^\+[\d.]+ (m?s|min \d+ s)\s*/, '').replace(/\s+/g, ' ').replace(/(under )?[\d.]+ m?s\b/, 'TIME')))
const admin = (path, body) => fetch(url + path, {method: 'POST', headers: {Authorization: `Bearer ${secret}`, 'Content-Type': 'application/json'}, body: JSON.stringify(body)}).then(async r => {
  if (!r.ok) throw new Error(`${path}: ${r.status} ${await r.text()}`)
  return r.json().catch(() => null)
})
const goTo = (page, path) => page.evaluate(path => { history.pushState({}, '', '/console/' + path); dispatchEvent(new PopStateEvent('popstate')) }, path)

// The server dies while an answer is streamed: the playground and the task's page say so, and continue without a loss. Until it is
// back the browser reports that it does not answer.
const dead = [/^(502|503|504) /, /^401 /]
const mine = await open({refusals: dead, mayBreak: true})
await signIn(mine, user)
const watch = await open({refusals: [...dead, /^404 /], mayBreak: true})
await signIn(watch, user, {path: 'tasks'})
const draft = await open({refusals: [...dead, /^404 /], mayBreak: true})
await signIn(draft, user)
await say(mine, 'hello')
await lastTurn(mine).locator('.text', {hasText: 'one'}).last().waitFor()
const task = new URL(await lastTurn(mine).getByRole('link', {name: 'Task'}).getAttribute('href'), url).pathname.replace('/console/', '')
await goTo(watch, task)
await watch.locator('.timeline', {hasText: 'working'}).waitFor()
console.log('kill')
await lines.next()
await lastTurn(mine).getByText('completed', {exact: true}).waitFor()
await watch.locator('.timeline').getByText('completed', {exact: true}).waitFor()
await watch.locator('.timeline').getByText('model', {exact: true}).waitFor()
seen.afterDeath = {answer: await lastTurn(mine).locator('.answer > li').allInnerTexts().then(all => all.map(words)), task: await steps(watch), alerts: await mine.getByRole('alert').count()}

// A token that is revoked is thrown out of each page: what it has read is hidden, and what was typed is there again after the same person
// has signed in. Another person finds nothing of it.
await mine.getByLabel('Message', {exact: true}).fill('a long thought')
await draft.getByLabel('Message', {exact: true}).fill('for nobody else')
await admin('/admin/apps/piper/tokens:revoke', {sub: 'ana'})
for (const page of [mine, watch, draft]) await page.getByText('The credential is no longer accepted').waitFor()
await picture(mine, 'sign-in-again')
seen.hidden = [await mine.evaluate(() => document.body.innerText.includes('hello') || document.title !== 'Stoa'), await watch.evaluate(() => document.body.innerText.includes('one two'))]
const again = async (page, token) => {
  await page.getByLabel('API key, token or admin secret').fill(token)
  await page.getByRole('button', {name: 'Sign in', exact: true}).click()
  await page.getByText('The credential is no longer accepted').waitFor({state: 'detached'})
}
// A token of the second of the revocation is revoked with the others.
let fresh
for (;;) {
  fresh = (await admin('/admin/apps/piper/tokens', {sub: 'ana'})).access_token
  if ((await fetch(url + '/tasks', {headers: {Authorization: `Bearer ${fresh}`}})).ok) break
  await new Promise(done => setTimeout(done, 200))
}
await again(mine, fresh)
seen.typed = await mine.getByLabel('Message', {exact: true}).inputValue()
await say(mine, 'still here')
await lastTurn(mine).getByText('completed', {exact: true}).waitFor()
await again(draft, (await admin('/admin/apps/piper/tokens', {sub: 'bob'})).access_token)
seen.typedByAnother = await draft.getByLabel('Message', {exact: true}).inputValue()
await again(watch, stranger)
await watch.getByRole('alert').first().waitFor()
seen.strangerAfter = await watch.evaluate(() => document.body.innerText.includes('one two'))

// Another app's token sees nothing of it or of acme, at any address.
const other = await open({refusals: [/^40[34] /]})
await signIn(other, stranger, {path: 'tasks'})
const addresses = ['tasks', task, 'agents', 'agents/pay', 'inbox', 'config', 'documents', 'documents/manual', 'triggers', 'usage', 'playground?agent=pay', 'overview', 'apps/acme', 'queue', 'audit', 'money', 'system']
seen.leaks = []
for (const address of addresses) {
  await goTo(other, address)
  await other.locator('main h2, main h3, main [role=alert]').first().waitFor()
  await other.waitForFunction(() => !document.querySelector('.mantine-Skeleton-root'))
  const text = await other.getByRole('main').innerText()
  if (/one two|Pay it|\bana\b/.test(text)) seen.leaks.push(address)
}
await check(other)

// Every text of a tenant that looks like markup is shown as it is: names, descriptions, messages, arguments and results of tools, prompts,
// comments, artifacts, errors, documents, YAML, and the user's own name.
const shownAsText = {}
const victim = await open()
await signIn(victim, probe)
const holds = async (name, locator = victim.getByRole('main')) => {
  await locator.getByText(attack).first().waitFor()
  shownAsText[name] = true
  await check(victim, name)
}
await visit(victim, 'Agents')
await holds('description of an agent')
await victim.getByRole('link', {name: attack}).click()
await holds('name of an agent')
// The graph of what the agents use, which is loaded when it is opened.
const loaded = []
victim.on('request', r => loaded.push(new URL(r.url()).pathname))
await visit(victim, 'Agents')
await victim.getByRole('article').first().waitFor()
seen.graph = [loaded.some(p => /graph/.test(p))]
await victim.getByRole('button', {name: 'Graph'}).click()
await victim.locator('.react-flow__node').nth(5).waitFor()
seen.graph.push(loaded.some(p => /graph/.test(p)), await victim.locator('.react-flow__node').count())
seen.graph.push(await victim.getByRole('region', {name: 'Uses'}).locator('tbody tr').evaluateAll(all => all.map(tr => [...tr.cells].map(c => c.innerText).join(' ')).sort((a, b) => a.split(' ')[0].localeCompare(b.split(' ')[0]))))
await picture(victim, 'graph')
await victim.getByRole('button', {name: 'sequential crew'}).or(victim.locator('.react-flow__node', {hasText: 'crew'})).first().click()
await victim.waitForURL(/agents\/crew/)
seen.graph.push(new URL(victim.url()).pathname)
await visit(victim, 'Playground')
const ask = async (agent, text, state) => {
  await victim.getByLabel('Agent').selectOption(agent)
  await victim.getByRole('button', {name: 'New conversation'}).click()
  await say(victim, text)
  await lastTurn(victim).getByText(state, {exact: true}).waitFor()
}
await ask('talker', attack, 'completed')
await holds('message', lastTurn(victim).locator('.mine'))
await holds('answer', lastTurn(victim).locator('.answer'))
await ask('talker', 'data', 'input required')
await holds('prompt of an approval', lastTurn(victim).locator('.approval'))
await holds('arguments of a call', lastTurn(victim).locator('.call'))
await lastTurn(victim).getByLabel('Comment').fill(attack)
await lastTurn(victim).getByRole('button', {name: 'Reject'}).click()
await lastTurn(victim).getByText('rejected', {exact: true}).waitFor()
await lastTurn(victim).getByRole('link', {name: 'Task'}).click()
await victim.getByText('Raw JSON').click()
await victim.locator('.json').waitFor()
await check(victim, 'raw JSON')
await visit(victim, 'Playground')
await ask('failing', 'x', 'failed')
await check(victim, 'error of a model')
await visit(victim, 'Tasks')
await holds('list of tasks')
await visit(victim, 'Configuration')
await victim.getByText('valid', {exact: true}).waitFor()
await victim.getByLabel('Compare with').selectOption('1')
await check(victim, 'YAML and its differences')
await visit(victim, 'Documents')
await victim.getByRole('link', {name: 'manual', exact: true}).click()
const chooser = victim.waitForEvent('filechooser')
await victim.getByRole('button', {name: 'Upload files'}).click()
await (await chooser).setFiles([{name: attack.replaceAll('/', '_') + '.md', mimeType: 'text/markdown', buffer: Buffer.from(`# ${attack}\n\nfindme [x](javascript:globalThis.pwned++) ![y](x) ${attack}\n`)}])
await victim.getByRole('region', {name: 'Documents'}).getByRole('cell', {name: 'indexed'}).waitFor()
await victim.getByLabel('What would be found').fill('findme')
await victim.getByRole('button', {name: 'Search'}).click()
await victim.getByRole('status', {name: 'Results'}).getByRole('article').first().waitFor()
await holds('document of Markdown', victim.getByRole('status', {name: 'Results'}))
seen.links = await victim.locator('a[href^="javascript:"]').count()
await visit(victim, 'Triggers')
await victim.getByRole('article').first().waitFor()
await check(victim, 'triggers')
await visit(victim, 'Usage')
await victim.getByLabel('Group').selectOption('user')
await holds('name of a user', victim.getByRole('region', {name: 'Usage by user'}))
// The operator sees the same texts.
const operator = await open()
await signIn(operator, secret, {path: 'apps/probe'})
await operator.getByRole('heading', {name: attack}).waitFor()
for (const tab of ['Configuration', 'Access', 'Usage', 'Settings']) {
  await operator.getByRole('tab', {name: tab}).click()
  await operator.getByRole('tabpanel').waitFor()
  await check(operator, `operator: ${tab}`)
}
await visit(operator, 'Audit')
await operator.getByRole('region', {name: 'Entries'}).waitFor()
await check(operator, 'audit trail')
await visit(operator, 'Queue')
await operator.getByRole('heading', {name: 'Queue'}).waitFor()
await check(operator, 'dead letters')
seen.shownAsText = Object.keys(shownAsText)
await shoot(victim, 'probe-usage')
await finish(seen)
process.exit()
