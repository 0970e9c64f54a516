// What a web page does with the agents of a server elsewhere. Each function returns what it saw.

const message = (text, more = {}) => ({message: {messageId: crypto.randomUUID(), role: 'user', parts: [{text}], ...more}, configuration: {blocking: true}})
const textOf = parts => (parts ?? []).map(p => p.text ?? '').join('')
const bearer = token => token ? {Authorization: 'Bearer ' + token} : {}

// ask makes a request and returns its answer, or the name of the error by which the browser keeps it from the page.
async function ask(address, token, body) {
  try {
    const response = await fetch(address, body
      ? {method: 'POST', headers: {...bearer(token), 'Content-Type': 'application/json'}, body: JSON.stringify(body)}
      : {headers: bearer(token)})
    return {status: response.status, request: response.headers.get('X-Request-Id'), ...await response.json()}
  } catch (error) {
    return {refused: error.name}
  }
}

// blind makes a request for which the browser asks nobody's leave, since the page does not get to see the answer.
const blind = (address, body) => fetch(address, {method: 'POST', mode: 'no-cors', body: new Blob([JSON.stringify(body)])}).then(r => r.type)

// stream reads the answer to a message as it comes.
async function stream(address, token, text) {
  const began = performance.now()
  const response = await fetch(address, {
    method: 'POST', headers: {...bearer(token), 'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID()}, body: JSON.stringify(message(text)),
  })
  const seen = {status: response.status, names: [], states: [], said: ''}
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let buffer = '', first = 0
  for (;;) {
    const {value, done} = await reader.read()
    if (done) break
    buffer += value
    const blocks = buffer.split('\n\n')
    buffer = blocks.pop()
    for (const block of blocks) {
      const field = name => block.split('\n').find(line => line.startsWith(name + ': '))?.slice(name.length + 2)
      const name = field('event'), data = JSON.parse(field('data'))
      if (!seen.names.includes(name)) seen.names.push(name)
      if (data.task) seen.states.push(data.task.status.state)
      if (data.msg) {
        first ||= performance.now() - began
        seen.said += textOf(data.msg.parts)
      }
    }
  }
  seen.live = first < performance.now() - began - 250
  return seen
}

// converse sends a message over a WebSocket and reads what comes of it.
const converse = (address, offers, text) => new Promise(resolve => {
  const seen = {opened: false, said: ''}
  const socket = new WebSocket(address.replace('http', 'ws'), offers)
  socket.onopen = () => {
    seen.opened = true
    seen.protocol = socket.protocol
    socket.send(JSON.stringify(message(text)))
  }
  socket.onmessage = ({data}) => {
    const frame = JSON.parse(data)
    seen.said += textOf(frame.response?.content)
    if (frame.done) socket.close(1000)
  }
  socket.onclose = ({code}) => resolve({...seen, code})
})

// follow listens to a task's events in the background; [followed] is what it has seen.
const sources = []
function follow(address) {
  const seen = {opened: 0, states: [], ended: false}
  const source = new EventSource(address)
  source.onopen = () => seen.opened++
  source.onmessage = ({data, lastEventId}) => {
    const {task} = JSON.parse(data)
    if (task) seen.states.push(lastEventId + ' ' + task.status.state)
  }
  source.addEventListener('done', () => {
    seen.ended = true
    source.close()
  })
  source.onerror = () => {
    seen.refused = source.readyState === EventSource.CLOSED
  }
  return sources.push(seen) - 1
}
const followed = i => sources[i]
