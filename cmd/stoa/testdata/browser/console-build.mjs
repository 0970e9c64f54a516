// The screens of an app's developer in a real browser: node console-build.mjs FOLDER CHROMIUM URL DEVELOPER ATTACK, where
// DEVELOPER is a token of an app and ATTACK a text that would run in a page that reads it as HTML. Its last line is what the
// pages showed.
import {mkdtemp, rm, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {start} from './console-pages.mjs'

const [folder, executablePath, url, developer, attack] = process.argv.slice(2)
const {open, signIn, until, visit, check, picture, finish} = await start({folder, executablePath, url})
const seen = {}

// The configuration: an error at its line while typing, completion, a description, a saved revision, a difference, a
// restored one.
const page = await open({refusals: [/^400 \/config$/, /^412 \/config$/]})
await signIn(page, developer)
const loaded = []
page.on('request', r => loaded.push(new URL(r.url()).pathname))
seen.editorInFirstLoad = loaded.some(p => p.includes('editor'))
await visit(page, 'Configuration')
const editor = page.getByLabel('Configuration as YAML')
await page.getByText('valid', {exact: true}).waitFor()
seen.editorLoaded = loaded.some(p => p.includes('editor'))
const original = await page.evaluate(() => document.querySelector('.editor').shadowRoot.querySelector('.cm-content').innerText.startsWith('# The agents of initech.'))
seen.original = original
await editor.press('Control+End')
await page.keyboard.insertText('  helper:\n    lmm: demo\n')
await page.getByText('2 errors', {exact: true}).waitFor()
seen.problems = await page.getByRole('list', {name: 'Problems'}).getByRole('listitem').allInnerTexts().then(all => all.map(t => t.replace(/\s+/g, ' ')))
seen.marks = await until(() => page.locator('.cm-lint-marker-error').count(), n => n === 2)
await picture(page, 'config-error')
await editor.press('Control+z')
await page.keyboard.insertText('  helper:\n')
await page.keyboard.type('    ll')
await page.locator('.cm-tooltip-autocomplete').getByText('llm', {exact: true}).first().waitFor()
await page.waitForTimeout(150)
await page.keyboard.press('Enter')
await page.keyboard.type('de')
await page.locator('.cm-tooltip-autocomplete').getByText('demo', {exact: true}).waitFor()
await page.waitForTimeout(150)
await page.keyboard.press('Enter')
await page.getByText('valid', {exact: true}).waitFor()
await page.locator('.cm-line', {hasText: 'llm:'}).last().locator('span', {hasText: 'llm'}).first().hover()
await page.locator('.cm-tooltip-hover').waitFor()
seen.description = await page.locator('.cm-tooltip-hover').innerText()
await page.mouse.move(0, 0)
await page.getByLabel('Compare with').selectOption('saved')
await page.waitForURL(/revision=saved/)
await page.locator('.cm-changedLine').first().waitFor()
seen.changed = (await page.locator('.cm-changedLine').allInnerTexts()).map(t => t.trim())
await picture(page, 'config-difference')
// What is typed survives a look at another screen.
await visit(page, 'Agents')
await page.getByRole('article').first().waitFor()
await visit(page, 'Configuration')
await page.getByRole('button', {name: 'Save'}).click()
await page.getByText('Saved as revision 2.').waitFor()
await visit(page, 'Agents')
// The page of an agent leads to what changes it.
await page.getByRole('link', {name: 'helper', exact: true}).click()
await page.getByRole('main').getByRole('link', {name: 'Configuration'}).click()
// Another person saves meanwhile: nothing is lost, and the difference is shown before it is saved.
await page.getByText('valid', {exact: true}).waitFor()
await editor.press('Control+End')
await page.keyboard.insertText('\n# mine\n')
const headers = {Authorization: `Bearer ${developer}`}
const now = await (await fetch(`${url}/config`, {headers: {...headers, Accept: 'application/yaml'}})).text()
await fetch(`${url}/config`, {method: 'PUT', headers: {...headers, 'Content-Type': 'application/yaml'}, body: now + '\n# theirs\n'})
await page.getByRole('button', {name: 'Save'}).click()
await page.getByRole('button', {name: 'Compare with the present one'}).click()
await page.locator('.cm-deletedLine, .cm-deletedChunk').first().waitFor()
seen.conflict = [await page.locator('.cm-deletedChunk').first().innerText(), (await page.locator('.cm-changedLine').allInnerTexts()).join()].map(t => t.trim())
await page.getByRole('button', {name: 'Save'}).click()
await page.getByText('Saved as revision 4.').waitFor()
await page.getByLabel('Compare with').selectOption('1')
await page.getByRole('button', {name: 'Restore revision 1'}).click()
await page.getByRole('group', {name: 'Restore revision 1'}).getByRole('button', {name: 'Restore'}).click()
await page.getByText('Revision 1 is in force again, as revision 5.').waitFor()
seen.restored = await until(() => page.evaluate(() => !document.querySelector('.editor').shadowRoot.textContent.includes('helper')), Boolean)
// Who restores a revision without a document store is told of its documents first.
const before = await (await fetch(`${url}/config`, {headers: {...headers, Accept: 'application/yaml'}})).text()
await fetch(`${url}/config`, {method: 'PUT', headers: {...headers, 'Content-Type': 'application/yaml'}, body: before.replace('document_stores:', 'document_stores:\n  shelf: {source: {type: upload}}')})
// The other process learns of the store a moment later.
await until(() => fetch(`${url}/v1/document-stores/shelf/documents/one`, {method: 'PUT', headers: {...headers, 'Content-Type': 'text/plain'}, body: 'one'}), response => response.ok)
await signIn(page, developer, {path: 'config'})
await page.getByLabel('Compare with').selectOption('5')
await page.getByRole('button', {name: 'Restore revision 5'}).click()
seen.warned = await page.getByRole('group', {name: 'Restore revision 5'}).locator('span', {hasText: 'shelf'}).innerText()
await page.getByRole('group', {name: 'Restore revision 5'}).getByRole('button', {name: 'Restore'}).click()
await page.getByText('Revision 5 is in force again, as revision 7.').waitFor()
// A secret goes in and never comes back.
await page.getByLabel('Name of the secret').fill('PAY_KEY')
await page.getByLabel('Value', {exact: true}).fill('sk-of-acme-0123456789')
await page.getByRole('button', {name: 'Store the secret'}).click()
await page.getByRole('cell', {name: 'PAY_KEY', exact: true}).waitFor()
seen.secretShown = (await page.content()).includes('sk-of-acme')
await page.getByRole('button', {name: 'Delete PAY_KEY'}).click()
await page.getByRole('group', {name: 'Delete PAY_KEY'}).getByRole('button', {name: 'Delete'}).click()
await page.getByRole('cell', {name: 'PAY_KEY', exact: true}).waitFor({state: 'detached'})
// What a tenant writes is text here too.
await editor.press('Control+End')
await page.keyboard.insertText(`\n# ${attack}\n`)
await page.getByText('valid', {exact: true}).waitFor()
await check(page)
await page.getByRole('button', {name: 'Discard'}).click()
await page.getByRole('group', {name: 'Discard'}).getByRole('button', {name: 'Discard'}).click()
await picture(page, 'config')

// The server's own file, in studio mode: checked while it is typed, and saved.
const studio = await open({refusals: [/^400 \/api\/config$/]})
await studio.goto(`${url}/console`)
await studio.getByRole('button', {name: 'Open the default app'}).click()
await visit(studio, 'Configuration')
await studio.getByRole('heading', {name: 'Configuration of the server'}).waitFor()
await studio.getByText('valid', {exact: true}).waitFor()
const file0 = await (await fetch(`${url}/api/config`)).text()
await studio.getByLabel('Configuration as YAML').press('Control+a')
await studio.keyboard.insertText('llms: {demo: {provider: scripted}}\nagents:\n  other: {llm: nosuch}\n')
await studio.getByText('1 error', {exact: true}).waitFor()
seen.studio = [file0 === await (await fetch(`${url}/api/config`)).text(), await studio.getByRole('list', {name: 'Problems'}).innerText().then(t => t.replace(/\s+/g, ' '))]
await studio.getByLabel('Configuration as YAML').press('Control+z')
await studio.getByText('valid', {exact: true}).waitFor()
await studio.getByLabel('Configuration as YAML').press('Control+End')
await studio.keyboard.insertText('\n# from the console\n')
await studio.getByText('valid', {exact: true}).waitFor()
await studio.getByRole('button', {name: 'Save', exact: true}).click()
await studio.getByText('The configuration is saved and in force.').waitFor()
seen.studio.push(await studio.getByText('It is the text of the file, with its secrets').count())
await picture(studio, 'studio')

// Documents: several files at once, one of them refused, the state of each, a search with scores, a deletion.
const shelf = await open({refusals: [/^413 /, /^404 \/v1\/document-stores/]})
await signIn(shelf, developer)
await visit(shelf, 'Documents')
await shelf.getByRole('article').nth(1).waitFor()
await picture(shelf, 'stores')
await shelf.getByRole('link', {name: 'feed', exact: true}).click()
await shelf.getByRole('button', {name: 'Read the source again'}).waitFor()
await visit(shelf, 'Documents')
await shelf.getByRole('link', {name: 'manual', exact: true}).click()
await shelf.getByText('There are no documents here yet.').waitFor()
// Files of the disk: a large one that this program sent to the browser itself would take it ten seconds.
const disk = await mkdtemp(join(tmpdir(), 'stoa-browser-'))
const file = async (name, text) => {
  await writeFile(join(disk, name), text)
  return join(disk, name)
}
const chooser = shelf.waitForEvent('filechooser')
await shelf.getByRole('button', {name: 'Upload files'}).click()
await (await chooser).setFiles(await Promise.all([
  file('warranty.md', '# Warranty\n\nThe warranty is two years.'), file('returns.md', '# Returns\n\nSend it back within thirty days.'),
  file(attack.replaceAll('/', '_') + '.txt', attack), file('large.txt', 'x'.repeat(21 << 20)),
]))
await shelf.getByRole('list', {name: 'Uploads'}).getByText('created').nth(2).waitFor()
await shelf.getByRole('list', {name: 'Uploads'}).getByRole('alert').waitFor()
await rm(disk, {recursive: true})
seen.uploads = await shelf.getByRole('list', {name: 'Uploads'}).getByRole('listitem').evaluateAll(all => all.map(li => /created|Try again/.exec(li.innerText)?.[0]))
await shelf.getByText('3 documents').waitFor()
const shelves = shelf.getByRole('region', {name: 'Documents'})
await shelves.getByRole('cell', {name: 'indexed'}).nth(2).waitFor()
await shelf.getByLabel('What would be found').fill('how long is the warranty')
await shelf.getByRole('button', {name: 'Search'}).click()
const results = shelf.getByRole('status', {name: 'Results'})
await results.getByRole('article').first().waitFor()
seen.found = await results.getByRole('article').first().innerText().then(t => [t.includes('1. Warranty'), /score \d/.test(t), /text \d/.test(t), t.includes('The warranty is two years.')])
await picture(shelf, 'documents')
await shelf.getByLabel('Beginning of the name').fill('ret')
await shelf.waitForURL(/prefix=ret/)
await shelf.getByText('1 document', {exact: true}).waitFor()
await shelf.getByRole('button', {name: 'Delete returns.md'}).click()
await shelf.getByRole('group', {name: 'Delete returns.md'}).getByRole('button', {name: 'Delete'}).click()
await shelf.getByText('No document fits.').waitFor()

// Triggers: the next start of a schedule, and a signed delivery as a command.
await visit(shelf, 'Triggers')
const schedule = shelf.getByRole('article', {name: 'Trigger of reporter'})
seen.schedule = await schedule.innerText().then(t => [t.includes('30 9 * * MON-FRI Europe/Berlin'), /Next\s+in \d+ /.test(t), t.includes('never yet')])
seen.delivery = await shelf.getByRole('article', {name: 'Trigger of triage'}).locator('pre').innerText().then(t => [t.includes('/webhooks/triage'), t.includes('$HOOK_SECRET')])
await picture(shelf, 'triggers')

// Usage: what the calls of a moment ago used, by agent and by day.
await visit(shelf, 'Usage')
await shelf.getByText('Nothing was used in these days').waitFor()
await visit(shelf, 'Playground')
await shelf.getByLabel('Agent').selectOption('zoe')
await shelf.getByLabel('Message', {exact: true}).fill('hello')
await shelf.getByRole('button', {name: 'Send'}).click()
await shelf.locator('.turn').last().getByText('completed', {exact: true}).waitFor()
// The page reads it when it is opened, unless it did so within the last second, and again every half minute.
const zoe = shelf.getByRole('region', {name: 'Usage by agent'}).getByRole('cell', {name: 'zoe'})
await until(async () => {
  await visit(shelf, 'Playground')
  await visit(shelf, 'Usage')
  return zoe.waitFor({timeout: 2000}).then(() => true, () => false)
}, Boolean)
await zoe.waitFor()
await shelf.getByLabel('Group').selectOption('model')
await shelf.waitForURL(/by=model/)
await shelf.getByRole('region', {name: 'Usage by model'}).getByRole('cell', {name: /scripted/}).waitFor()
seen.budget = await until(
  () => shelf.getByRole('list', {name: 'Budgets'}).getByRole('listitem').allInnerTexts().then(all => all.map(t => t.replace(/\s+/g, ' ').replace(/ begins anew.*/, ''))), ([first]) => / 4 tokens of/.test(first),
)
const saved = shelf.waitForEvent('download')
await shelf.getByRole('button', {name: 'Save as CSV'}).click()
seen.csv = (await saved).suggestedFilename()
await picture(shelf, 'usage')

// A schedule is run at once, and its last starts are listed; the address says whose.
await visit(shelf, 'Triggers')
await schedule.getByRole('button', {name: 'Run now'}).click()
await schedule.getByRole('link', {name: 'The task that it started'}).waitFor()
await schedule.getByRole('button', {name: 'Last starts'}).click()
await shelf.waitForURL(/starts=reporter/)
const starts = shelf.getByRole('region', {name: 'Last starts of reporter'})
await starts.getByRole('link', {name: 'Task'}).waitFor()
seen.starts = await starts.getByRole('row').nth(1).innerText().then(t => [t.includes('by hand'), t.includes('started')])
await picture(shelf, 'starts')

await finish(seen)
