// The page of a task with thousands of events in a real browser: node console-large.mjs FOLDER CHROMIUM URL TOKEN TASK STEPS, where
// TASK is a finished task of STEPS steps that the token may read. Its last line is what the page showed. It prints on standard error how
// long each interaction took to the next paint.
import {start} from './console-pages.mjs'

const [folder, executablePath, url, token, task, steps] = process.argv.slice(2)
const {open, signIn, picture, finish} = await start({folder, executablePath, url})
const number = new Intl.NumberFormat('en')
const seen = {}

const page = await open()
await page.addInitScript(() => {
  globalThis.interactions = []
  new PerformanceObserver(list => {
    for (const e of list.getEntries()) if (e.interactionId) globalThis.interactions.push({id: e.interactionId, name: e.name, duration: e.duration})
  }).observe({type: 'event', durationThreshold: 16, buffered: true})
})
await signIn(page, token, {path: `tasks/${task}`})
await page.getByText(`${number.format(steps)} steps`).waitFor({timeout: 120000})
const rows = () => page.locator('.timeline > li')
seen.few = (await rows().count()) < 60
seen.first = (await rows().first().innerText()).replace(/\s+/g, ' ').endsWith('submitted')

// interact does something several times and keeps the median of the times to the next paint: other work of the machine makes single ones
// longer. An interaction that took less than 16 ms has no entry.
const figures = {}
const interact = async (name, ...attempts) => {
  const durations = []
  for (const attempt of attempts) {
    await page.evaluate(() => { globalThis.interactions = [] })
    await attempt()
    // Event Timing reports an event after the next frame: two more frames are past it.
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))))
    durations.push(await page.evaluate(() => Math.max(0, ...globalThis.interactions.map(e => e.duration))))
  }
  figures[name] = {median: [...durations].sort((a, b) => a - b)[durations.length >> 1], all: durations}
}
const click = name => () => page.getByRole('button', {name, exact: true}).click()
await interact('jump to the end and back', ...Array.from({length: 3}, () => [click('Last step'), click('First step')]).flat())
await click('Last step')()
await page.locator(`.timeline > li[aria-posinset="${steps}"]`).waitFor()
seen.last = (await page.locator(`.timeline > li[aria-posinset="${steps}"]`).innerText()).replace(/\s+/g, ' ').replace(/^\+[\d.]+ (m?s|min \d+ s) /, '')
seen.fewAtTheEnd = (await rows().count()) < 60
await page.getByRole('button', {name: 'First step'}).focus()
await interact('scroll by keys', ...Array.from({length: 6}, (_, i) => () => page.keyboard.press(i % 2 ? 'PageDown' : 'PageUp')))
const box = page.getByLabel('Find in the timeline')
await box.click()
await interact('type into the search', ...'125 + 1'.split('').map(key => () => page.keyboard.press(key)))
await page.waitForURL(/find=125/)
seen.found = await page.getByText(/ of .* steps$/).innerText()
seen.onlyFound = (await rows().allInnerTexts()).every(t => t.includes('125 + 1'))
await page.reload()
await signIn(page, token, {path: `tasks/${task}?find=125 %2B 1`})
await page.getByText(seen.found).waitFor({timeout: 120000})
await box.fill('')
await page.getByText(`${number.format(steps)} steps`, {exact: true}).waitFor()
await interact('open and close the raw JSON', ...Array.from({length: 8}, () => () => page.getByText('Raw JSON').click()))
await page.evaluate(() => scrollTo(0, 0))
await picture(page, 'task-large', false)
for (const [name, {median, all}] of Object.entries(figures)) console.error(`interaction to next paint, ${name}: median ${median} ms of ${all.join(', ')} ms`)
seen.slow = Object.entries(figures).filter(([, {median}]) => median > 100).map(([name]) => name)
await finish(seen)
