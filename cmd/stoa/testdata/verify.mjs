// The official client for JavaScript: node verify.mjs FOLDER CARD..., where the folder's node_modules hold @a2a-js/sdk. It verifies
// the cards at some addresses by the keys that they point to, and prints for each whether it is signed, and whether another would be.
import {pathToFileURL} from 'node:url'

const [folder, ...addresses] = process.argv.slice(2)
const {verifyAgentCardSignature} = await import(pathToFileURL(folder + '/node_modules/@a2a-js/sdk/dist/index.js'))

console.debug = () => {}
const verify = verifyAgentCardSignature(async (kid, jku) => {
  const {keys} = await (await fetch(jku)).json()
  return keys.find(k => k.kid === kid)
})
const holds = async card => {
  try {
    await verify(card)
    return true
  } catch {
    return false
  }
}
for (const address of addresses) {
  const card = await (await fetch(address)).json()
  console.log(await holds(card), await holds({...card, description: 'Another.'}))
}
