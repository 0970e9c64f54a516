// What the console offers to credentials that allow different things, in a real browser: node console-roles.mjs FOLDER CHROMIUM URL
// CALLER APPROVER DEVELOPER, where the last three are tokens of one app. Its last line is what the pages showed.
import {start} from './console-pages.mjs'

const [folder, executablePath, url, caller, approver, developer] = process.argv.slice(2)
const {open, signIn, visit, picture, check, finish} = await start({folder, executablePath, url})
const seen = {}
const say = async (page, text) => {
  await page.getByLabel('Message', {exact: true}).fill(text)
  await page.getByRole('button', {name: 'Send'}).click()
}
const state = (page, name) => page.locator('.turn').last().getByText(name, {exact: true}).waitFor()
const screens = page => page.getByRole('navigation', {name: 'Console'}).getByRole('link').allInnerTexts().then(all => all.map(text => text.split('\n')[0]))
const who = page => page.locator('.who .app').innerText()
// waits returns what a page says of a call that waits, and how many buttons it has for it.
const waits = async page => {
  const approval = page.locator('.approval')
  await approval.waitFor()
  return [(await approval.innerText()).includes('It waits for an approver.'), await approval.getByRole('button').count()]
}

// A caller may not decide about the call that its agent wants to make.
const mine = await open({permissions: ['clipboard-read', 'clipboard-write']})
await signIn(mine, caller)
seen.caller = [await who(mine), await screens(mine)]
await say(mine, 'pay')
await state(mine, 'input required')
seen.callerWaits = await waits(mine)
const cancels = page => page.getByRole('button', {name: 'Cancel the task'}).count()
await mine.locator('.turn').last().getByLabel('Copy as').selectOption('curl')
await mine.getByRole('status').filter({hasText: 'Copied as curl'}).waitFor()
seen.copied = await mine.evaluate(() => navigator.clipboard.readText()).then(t => t.startsWith('curl -N '))
await picture(mine, 'playground-caller')

// A developer sees it on the page of the task, whose steps show their time since the first.
const theirs = await open()
await signIn(theirs, developer)
seen.developer = [await who(theirs), await screens(theirs)]
await visit(theirs, 'Tasks')
seen.listed = (await theirs.locator('table.tasks tbody td').first().innerText()).split(/\n+/)[1]
await theirs.locator('table.tasks tbody a').first().click()
seen.developerWaits = await waits(theirs)
await theirs.locator('.timeline').getByText('input required', {exact: true}).waitFor()
const times = await theirs.locator('.timeline time').evaluateAll(all => all.map(t => [t.innerText, t.title, Date.parse(t.dateTime)]))
const isSinceFirst = ([text, title, at]) => {
  const [, number, unit] = text.match(/^\+([\d.]+) (m?s)$/) ?? []
  const [size, rounding] = unit === 'ms' ? [1, 1] : [1000, 100]
  return title !== '' && Math.abs(number * size - (at - times[0][2])) <= rounding
}
seen.times = [times.length > 2, times[0]?.[0], times.every(isSinceFirst)]
// The task is another user's, which needs a scope to be cancelled; its owner needs none.
const id = theirs.url().split('/').at(-1)
seen.cancels = [await cancels(theirs)]
const owner = await open()
await signIn(owner, caller, {path: `tasks/${id}`})
await owner.getByRole('button', {name: 'Cancel the task'}).waitFor()
seen.cancels.push(await cancels(owner))
// Nor may a caller decide in the inbox, which says what that needs, or read the configuration, of which the graph is drawn.
await owner.evaluate(() => { history.pushState({}, '', '/console/inbox'); dispatchEvent(new PopStateEvent('popstate')) })
await owner.getByText('needs the scope tasks:approve').waitFor()
await visit(owner, 'Agents')
await owner.getByRole('article').waitFor()
seen.callerAgents = [await owner.getByRole('link', {name: 'Try it'}).count(), await owner.getByRole('button', {name: 'Graph'}).count()]
await owner.close()
await picture(theirs, 'task-developer')

// An approver begins with what waits.
const boss = await open()
await signIn(boss, approver)
await boss.waitForURL(/\/console\/inbox$/)
seen.approver = [await who(boss), await screens(boss)]
await boss.getByText('Pay it?').waitFor()
await boss.getByText('Request: pay', {exact: true}).waitFor()
await picture(boss, 'inbox-approver')
await boss.getByRole('button', {name: 'Approve'}).click()
await state(mine, 'completed')
// Who may call no agent is offered none to try.
await visit(boss, 'Agents')
await boss.getByRole('article').waitFor()
seen.approverAgents = [await boss.getByRole('link', {name: 'Try it'}).count(), await boss.getByRole('link', {name: 'Its tasks'}).count()]

// A conversation with an app that asks for no credential is there after a reload.
const anyone = await open()
await anyone.goto(`${url}/console`)
await anyone.getByRole('button', {name: 'Open the default app'}).click()
await anyone.getByLabel('Message', {exact: true}).fill('hello')
await anyone.keyboard.press('Enter')
await state(anyone, 'completed')
seen.anyone = await who(anyone)
// The message has the focus after the first one too, and in a conversation that is begun. The colours change under the policy.
const focused = () => anyone.evaluate(() => document.activeElement.ariaLabel)
seen.focus = [await focused()]
await anyone.getByRole('button', {name: 'Dark colours'}).click()
await check(anyone, 'dark colours')
await anyone.getByRole('button', {name: 'New conversation'}).click()
await anyone.getByRole('navigation', {name: 'Conversations'}).waitFor()
seen.focus.push(await focused())
await anyone.getByRole('button', {name: 'Close the conversation'}).first().click()
// No screen makes the header wider by its name. The configuration of this app is its server's file, which is not asked for.
seen.wider = await anyone.locator('header nav a').evaluateAll(all => all.filter(a => {
  const widths = [0, 1].map(() => (a.classList.toggle('active'), a.getBoundingClientRect().width))
  return widths[0] !== widths[1]
}).length)
await visit(anyone, 'Configuration')
await anyone.getByText('stoa serve --config FILE --studio').waitFor()
await visit(anyone, 'Agents')
await anyone.getByRole('article').waitFor()
seen.anyoneAgents = [await anyone.getByRole('link', {name: 'Try it'}).count(), await anyone.getByRole('button', {name: 'Graph'}).count(), await anyone.title()]
await visit(anyone, 'Playground')
await anyone.reload()
await state(anyone, 'completed')
// The first key skips the header.
await anyone.keyboard.press('Tab')
seen.skip = [await anyone.evaluate(() => document.activeElement.innerText)]
await check(anyone)
await anyone.keyboard.press('Enter')
seen.skip.push(await anyone.evaluate(() => document.activeElement.tagName), new URL(anyone.url()).hash)
seen.reloaded = (await anyone.locator('.turn .mine').innerText()).trim()
for (const page of [mine, theirs, boss, anyone]) await check(page)
await finish(seen)
