// The console in a real browser: node console.mjs FOLDER CHROMIUM URL SHOTS USER APPROVER STRANGER ATTACK, where USER and APPROVER
// are tokens of one app, STRANGER is one of another, and ATTACK is a text that would run in a page that reads it as HTML. Its
// last line is what the pages showed. SHOTS is the folder for pictures.
import {pathToFileURL} from 'node:url'

const [folder, executablePath, url, shots, user, approver, stranger, attack] = process.argv.slice(2)
const {chromium} = await import(pathToFileURL(folder + '/node_modules/playwright-core/index.mjs'))
const browser = await chromium.launch({executablePath, args: ['--no-sandbox']})
const complaints = []
const hosts = new Set()

// A journey that fails leaves a picture of each page and what was complained about.
process.on('uncaughtException', async error => {
  console.error(error, complaints.slice(0, 5))
  for (const [i, context] of browser.contexts().entries()) {
    for (const page of context.pages()) await page.screenshot({path: `${shots}/failed-${i}.png`}).catch(() => {})
  }
  process.exit(1)
})

// open returns a page of a browser's own profile, which writes down errors and addresses.
const open = async options => {
  const context = await browser.newContext({viewport: {width: 1200, height: 900}, reducedMotion: 'reduce', ...options})
  const page = await context.newPage()
  page.setDefaultTimeout(20000)
  await page.addInitScript(() => {
    globalThis.violations = []
    globalThis.pwned = 0
    document.addEventListener('securitypolicyviolation', e => globalThis.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))
  })
  page.on('console', m => ['error', 'warning'].includes(m.type()) && complaints.push(m.text()))
  page.on('pageerror', e => complaints.push(String(e)))
  page.on('request', r => hosts.add(new URL(r.url()).host))
  page.on('dialog', d => { complaints.push('dialog ' + d.message()); d.dismiss() })
  return page
}
const signIn = async (page, token, {keep = false, path = ''} = {}) => {
  await page.goto(`${url}/console/${path}`)
  await page.getByLabel('API key or token', {exact: true}).fill(token)
  if (keep) await page.getByLabel('Keep it until this tab closes').check()
  await page.getByRole('button', {name: 'Sign in'}).click()
  await page.getByRole('navigation', {name: 'Console'}).waitFor()
}
const visit = (page, name) => page.getByRole('navigation', {name: 'Console'}).getByRole('link', {name}).click()
const say = async (page, text) => {
  await page.getByLabel('Message', {exact: true}).fill(text)
  await page.getByRole('button', {name: 'Send'}).click()
}
const state = (page, name) => page.locator('.turn').last().getByText(name, {exact: true}).waitFor()
const shoot = (page, name) => page.screenshot({path: `${shots}/${name}.png`, fullPage: true})
const check = async page => {
  const found = await page.evaluate(() => ({violations: globalThis.violations, pwned: globalThis.pwned, images: document.querySelectorAll('#root img').length}))
  complaints.push(...found.violations)
  if (found.pwned || found.images) complaints.push(`markup of a tenant became part of the page: ${JSON.stringify(found)}`)
}
const seen = {}

// The default app is open: one click, no credential.
const anyone = await open()
await anyone.goto(`${url}/console`)
await anyone.getByRole('button', {name: 'Open the default app'}).click()
await say(anyone, 'hello')
await state(anyone, 'completed')
seen.open = await anyone.locator('.answer .text').last().innerText()
await check(anyone)

// The caller: a streamed answer, a call, an approval that waits.
const mine = await open()
await mine.goto(`${url}/console`)
await shoot(mine, 'sign-in-light')
await signIn(mine, user)
seen.kept = await mine.evaluate(() => [sessionStorage.length, document.cookie])
await visit(mine, 'Agents')
await mine.getByRole('article').first().waitFor()
await shoot(mine, 'agents-light')
await mine.getByRole('link', {name: 'Try it'}).click()
await say(mine, 'slow')
await mine.locator('.answer .text', {hasText: 'one'}).waitFor()
seen.streamed = (await mine.locator('.answer .text').last().innerText()).trim()
await state(mine, 'completed')
seen.whole = await mine.locator('.answer .text').last().innerText()
await say(mine, 'sum')
await state(mine, 'completed')
seen.callOfUser = await mine.locator('.turn').last().locator('.call pre').allInnerTexts()
await say(mine, attack)
await state(mine, 'completed')
seen.attack = (await mine.locator('.turn').last().locator('.answer .text').last().innerText()) === 'You said: ' + attack
await mine.locator('.turn').last().getByRole('button', {name: 'Copy as curl'}).click()
const curl = await mine.locator('.turn').last().locator('.snippet pre').innerText()
seen.curl = [curl.includes('$STOA_TOKEN'), curl.includes(user), curl.includes('/agents/assistant')]
await mine.getByRole('button', {name: 'New conversation'}).click()
await say(mine, 'never')
await mine.locator('.turn').last().getByRole('button', {name: 'Cancel'}).click()
await state(mine, 'cancelled')
seen.conversations = await mine.getByRole('navigation', {name: 'Conversations'}).getByRole('button', {name: 'assistant'}).count()
await mine.getByRole('button', {name: 'New conversation'}).click()
await say(mine, 'pay')
await state(mine, 'input required')
await check(mine)
await shoot(mine, 'playground-light')

// The approver: the inbox, edits and a comment; the caller sees the outcome at once.
const theirs = await open({colorScheme: 'dark'})
await signIn(theirs, approver, {keep: true, path: 'inbox'})
await theirs.getByText('Pay it?').waitFor()
await theirs.waitForFunction(() => document.title === '(1) Stoa')
await shoot(theirs, 'inbox-dark')
await theirs.getByRole('button', {name: 'Edit arguments'}).click()
await theirs.getByLabel('Arguments').fill('{"expression": "20 + 3"}')
await theirs.getByLabel('Comment').fill('less')
await theirs.getByRole('button', {name: 'Approve with edits'}).click()
await theirs.getByText('Nothing waits for you').waitFor()
await theirs.waitForFunction(() => document.title === 'Stoa')
await shoot(theirs, 'inbox-empty-dark')
await state(mine, 'completed')
seen.decided = await mine.locator('.turn').last().locator('.answer .text').last().innerText()
await say(mine, 'pay')
await state(mine, 'input required')
await theirs.getByText('Pay it?').waitFor()
await theirs.getByRole('button', {name: 'Reject'}).click()
await theirs.getByText('Nothing waits for you').waitFor()
await state(mine, 'rejected')

// Tasks: the filter is in the address and survives a reload; a task's timeline with results, which the approver's role sees.
await visit(theirs, 'Tasks')
await theirs.getByRole('row').nth(3).waitFor()
await shoot(theirs, 'tasks-dark')
await theirs.getByLabel('State').selectOption('completed')
await theirs.waitForURL(/status=completed/)
await theirs.reload()
await theirs.waitForURL(/status=completed/)
await theirs.getByText(/^\d tasks$/).waitFor()
seen.completed = await theirs.getByText(/^\d tasks$/).innerText()
await theirs.getByRole('row', {name: 'The sum'}).getByRole('link').click()
await theirs.locator('.timeline .call').waitFor()
await theirs.locator('.timeline').getByText('completed', {exact: true}).waitFor()
seen.timeline = await theirs.locator('.timeline > li').evaluateAll(all => all.map(li => li.innerText.replace(/^.*(ago|now|in \d+ seconds?)\s*/, '').replace(/\s+/g, ' ')))
await shoot(theirs, 'task-dark')
await theirs.goto(`${url}/console/playground`)
await say(theirs, 'echo ' + attack)
await state(theirs, 'completed')
seen.attackInResult = (await theirs.locator('.turn').last().locator('.call pre').last().innerText()).includes(attack)
await check(theirs)
await shoot(theirs, 'playground-dark')

// A phone.
const phone = await open({viewport: {width: 390, height: 800}, isMobile: true})
await signIn(phone, approver, {path: 'tasks'})
await phone.getByRole('row').nth(3).waitFor()
seen.wide = [await phone.evaluate(() => document.documentElement.scrollWidth)]
await shoot(phone, 'tasks-narrow')
await phone.locator('tbody a').first().click()
await phone.locator('.timeline > li').first().waitFor()
await shoot(phone, 'task-narrow')
await visit(mine, 'Playground')
await say(mine, 'pay')
await state(mine, 'input required')
await visit(phone, 'Inbox')
await phone.getByText('Pay it?').waitFor()
seen.wide.push(await phone.evaluate(() => document.documentElement.scrollWidth))
await shoot(phone, 'inbox-narrow')
await check(phone)

// Another app sees nothing of it. Signing out forgets.
const task = new URL(await mine.locator('.turn').last().getByRole('link', {name: 'Task'}).getAttribute('href'), url).pathname
const foreign = await open()
await signIn(foreign, stranger, {path: 'tasks'})
await foreign.getByText('There are no tasks yet').waitFor()
await visit(foreign, 'Inbox')
await foreign.getByText('Nothing waits for you').waitFor()
await check(foreign)
const before = complaints.length
await foreign.evaluate(path => { history.pushState({}, '', path); dispatchEvent(new PopStateEvent('popstate')) }, task)
await foreign.getByRole('alert').waitFor()
seen.foreign = await foreign.getByRole('alert').innerText()
await shoot(foreign, 'error-light')
await foreign.getByRole('button', {name: 'Sign out'}).click()
await foreign.getByLabel('API key or token', {exact: true}).fill('wrong')
await foreign.getByRole('button', {name: 'Sign in'}).click()
await foreign.getByText('Sign in again.').waitFor()
// Chromium writes every answer of 4xx to the console.
seen.refusals = complaints.splice(before).map(c => c.replace(/.*status of (\d+).*/, '$1'))
await theirs.getByRole('button', {name: 'Sign out'}).click()
await theirs.getByRole('button', {name: 'Sign in'}).waitFor()
seen.forgotten = await theirs.evaluate(() => [sessionStorage.length, document.body.innerText.includes('Pay')])
for (const page of [mine, theirs, phone, foreign]) await check(page)
seen.hosts = [...hosts].filter(h => h !== new URL(url).host)
seen.complaints = complaints
console.log(JSON.stringify(seen))
await browser.close()
