// What the journeys through the console share: pages that write down errors, signing in, pictures, and checks.
import {readFile} from 'node:fs/promises'
import {pathToFileURL} from 'node:url'

// STOA_TEST_SCREENSHOTS is the folder for pictures; without it none are taken.
const shots = process.env.STOA_TEST_SCREENSHOTS

export async function start({folder, executablePath, url}) {
  const {chromium} = await import(pathToFileURL(folder + '/node_modules/playwright-core/index.mjs'))
  const axe = await readFile(folder + '/node_modules/axe-core/axe.min.js', 'utf8')
  const browser = await chromium.launch({executablePath, args: ['--no-sandbox']})
  // Long enough for a machine that does much else at the same time.
  const patience = 60000
  const complaints = []
  const hosts = new Set()

  // A journey that fails leaves a picture of each page and what was complained about.
  process.on('uncaughtException', async error => {
    console.error(error.message ?? error, complaints.slice(0, 5))
    for (const [i, context] of browser.contexts().entries()) {
      for (const page of context.pages()) if (shots) await page.screenshot({path: `${shots}/failed-${i}.png`}).catch(() => {})
    }
    process.exit(1)
  })

  // watch writes down what goes wrong in a page, and which hosts it asks.
  const watch = (page, refusals, mayBreak) => {
    page.setDefaultTimeout(patience)
    // Other pages, such as those of an OpenID provider, are not what is tested.
    const isOurs = () => page.url().startsWith(url)
    page.on('console', m => {
      if (!['error', 'warning'].includes(m.type()) || !isOurs()) return
      if (mayBreak && /net::ERR_/.test(m.text())) return
      const status = m.text().match(/status of (\d+)/)?.[1]
      const refusal = `${status} ${m.location().url ? new URL(m.location().url).pathname : ''}`
      if (!status || !refusals.some(r => r.test(refusal))) complaints.push(status ? `${m.text()} ${refusal}` : m.text())
    })
    page.on('pageerror', e => isOurs() && complaints.push(String(e)))
    page.on('request', r => isOurs() && hosts.add(new URL(r.url()).host))
    page.on('dialog', d => { complaints.push('dialog ' + d.message()); d.dismiss() })
  }

  // open returns a page of a browser's own profile, which writes down errors and addresses. refusals are patterns of
  // "STATUS PATH" of answers that the journey expects: Chromium writes every answer of 4xx to the console. mayBreak is for a page
  // whose server dies: it writes that a connection broke, at any time after.
  const open = async ({refusals = [], mayBreak = false, ...options} = {}) => {
    const context = await browser.newContext({viewport: {width: 1200, height: 900}, reducedMotion: 'reduce', ...options})
    await context.addInitScript(() => {
      globalThis.violations = []
      globalThis.pwned = 0
      document.addEventListener('securitypolicyviolation', e => globalThis.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))
    })
    // A page may open others.
    context.on('page', page => watch(page, refusals, mayBreak))
    return context.newPage()
  }
  const signIn = async (page, token, {keep = false, path = ''} = {}) => {
    await page.goto(`${url}/console/${path}`)
    await page.getByLabel(/^(API key, token or admin secret)$/).fill(token)
    if (keep) await page.getByLabel('Keep it until this tab closes').check()
    await page.getByRole('button', {name: 'Sign in', exact: true}).click()
    await page.getByRole('navigation', {name: 'Console'}).waitFor()
  }
  // until reads something until it is as expected, or the time of a wait has passed, and returns what it read last: what is never as
  // expected is seen in the journey's last line.
  const until = async (read, isExpected) => {
    for (const end = Date.now() + patience; ; await new Promise(done => setTimeout(done, 100))) {
      const got = await read()
      if (isExpected(got) || Date.now() > end) return got
    }
  }
  const visit = (page, name) => page.getByRole('navigation', {name: 'Console'}).getByRole('link', {name}).click()
  const shoot = (page, name, fullPage = true) => shots && page.screenshot({path: `${shots}/${name}.png`, fullPage})
  // check writes down violations of the policy, markup that ran, and serious findings about accessibility.
  const check = async (page, name = '') => {
    const found = await page.evaluate(() => ({violations: globalThis.violations.splice(0), pwned: globalThis.pwned, images: document.querySelectorAll('#root img').length}))
    complaints.push(...found.violations)
    if (found.pwned || found.images) complaints.push(`markup of a tenant became part of the page: ${JSON.stringify(found)}`)
    // A document needs the program once.
    if (await page.evaluate(() => !globalThis.axe)) await page.evaluate(axe)
    const results = await page.evaluate(() => globalThis.axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}))
    for (const v of results.violations.filter(v => ['serious', 'critical'].includes(v.impact))) {
      complaints.push(`${name || page.url()}: ${v.id}: ${v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? '')).join(' | ')}`)
    }
  }
  // picture checks a page and takes its picture, in both colour schemes and on a phone; without fullPage of what is in sight.
  const picture = async (page, name, fullPage = true) => {
    for (const [kind, colorScheme, viewport] of [['light', 'light'], ['dark', 'dark'], ['narrow', 'light', {width: 390, height: 800}]]) {
      await page.emulateMedia({colorScheme, reducedMotion: 'reduce'})
      const before = page.viewportSize()
      if (viewport) await page.setViewportSize(viewport)
      await check(page, `${name} ${kind}`)
      const width = await page.evaluate(() => document.documentElement.scrollWidth)
      if (viewport && width > viewport.width) complaints.push(`${name} is ${width} pixels wide on a phone`)
      complaints.push(...(await page.evaluate(() => {
        const isCut = e => e.scrollWidth > e.clientWidth
        const badges = [...document.querySelectorAll('.scroll .mantine-Badge-label')].filter(isCut).map(e => `the badge ${e.innerText} is cut`)
        const tables = [...document.querySelectorAll('.scroll')].filter(e => isCut(e) && e.querySelectorAll('th').length < 5).map(e => `columns of ${e.ariaLabel} are out of sight`)
        return [...badges, ...tables]
      })).map(what => `${name} ${kind}: ${what}`))
      await shoot(page, `${name}-${kind}`, fullPage)
      if (viewport) await page.setViewportSize(before)
    }
    await page.emulateMedia({colorScheme: 'light', reducedMotion: 'reduce'})
  }
  // finish prints what the journey saw, as its last line.
  const finish = async seen => {
    seen.hosts = [...hosts].filter(h => h !== new URL(url).host)
    seen.complaints = complaints
    console.log(JSON.stringify(seen))
    await browser.close()
  }
  return {open, signIn, until, visit, shoot, check, picture, finish, complaints}
}
