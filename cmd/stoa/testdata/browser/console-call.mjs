// A call of a tool that hangs, in a real browser: node console-call.mjs FOLDER CHROMIUM URL TOKEN, where TOKEN is that of a user whose
// agent calls such a tool. Its last line is what the pages showed.
import {start} from './console-pages.mjs'

const [folder, executablePath, url, token] = process.argv.slice(2)
const {open, signIn, check, finish} = await start({folder, executablePath, url})
const seen = {}

const page = await open()
await signIn(page, token)
const turn = page.locator('.turn').last()
for (const where of ['playground', 'task']) {
  await page.getByLabel('Message', {exact: true}).fill('go')
  await page.getByRole('button', {name: 'Send'}).click()
  await page.getByRole('button', {name: 'Cancel the call of fetch'}).waitFor()
  if (where === 'task') await turn.getByRole('link', {name: 'Task'}).click()
  if (where === 'task') await page.getByText(/^Under way: the tool fetch, for \d+ s$/).waitFor()
  await check(page)
  await page.getByRole('button', {name: 'Cancel the call of fetch'}).click()
  await page.locator(where === 'task' ? '.timeline' : '.turn').last().getByText('completed', {exact: true}).waitFor()
  seen[where] = [await page.getByText(/^It says: /).last().innerText().then(t => t.slice(0, 8)), await page.getByRole('button', {name: 'Cancel the call of fetch'}).count()]
}
await finish(seen)
