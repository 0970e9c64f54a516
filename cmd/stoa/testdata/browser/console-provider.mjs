// Signing in at an OpenID provider in a real browser: node console-provider.mjs FOLDER CHROMIUM URL PROVIDER, where PROVIDER is
// the address of a provider that signs in everyone. Its last line is what the pages showed.
import {start} from './console-pages.mjs'

const [folder, executablePath, url, provider] = process.argv.slice(2)
const {open, shoot, check, finish} = await start({folder, executablePath, url})
const seen = {}

const page = await open()
const sent = []
page.on('request', r => r.url().startsWith(url) && r.headers().authorization && sent.push(r.headers().authorization))
await page.goto(`${url}/console/tasks?status=completed`)
await page.getByRole('button', {name: `Sign in at ${new URL(provider).host}`}).waitFor()
await check(page)
await shoot(page, 'sign-in-provider-light')
const authorization = page.waitForRequest(r => r.url().startsWith(provider + '/auth?'))
await page.getByRole('button', {name: `Sign in at ${new URL(provider).host}`}).click()
const asked = new URL((await authorization).url()).searchParams
seen.asked = [asked.get('response_type'), asked.get('code_challenge_method'), asked.get('client_id'), asked.get('resource'), asked.get('redirect_uri') === `${url}/console/`]
await page.locator('input[name=login]').fill('ana')
await page.locator('input[name=password]').fill('any')
await page.locator('button[type=submit]').click()
await page.getByRole('button', {name: 'Continue'}).click()
// Back on the screen that was asked for, without the code in the address.
await page.waitForURL(u => u.pathname.endsWith('/console/tasks'))
await page.getByRole('navigation', {name: 'Console'}).waitFor()
seen.address = new URL(page.url()).search
seen.kept = await page.evaluate(() => [sessionStorage.length, document.cookie])
const first = sent.at(-1)
await page.getByText('No task fits').waitFor()
// The token expires in five seconds: the next calls have another one, and nothing was asked.
await page.waitForRequest(r => r.url().includes('/tasks') && !!r.headers().authorization && r.headers().authorization !== first)
seen.renewed = await page.getByRole('alert').count()
await check(page)

// An answer that this tab did not ask for is not taken.
const other = await open()
await other.goto(`${url}/console/?code=stolen&state=another`)
await other.getByText('The answer of the provider belongs to another sign-in.').waitFor()
seen.stolen = new URL(other.url()).search
await finish(seen)
