// What a web page does with the agents of a server elsewhere. Each function returns what it saw.

const id = () => Math.random().toString(36).slice(2) // crypto.randomUUID is for secure contexts
const message = (text, more = {}) => ({message: {messageId: id(), role: 'user', parts: [{text}], ...more}, configuration: {blocking: true}})
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

// post sends a body in a way that the browser asks nobody's leave for, and reads the answer if it may.
const post = (address, body) => fetch(address, {method: 'POST', body: new Blob([JSON.stringify(body)])})
  .then(r => ({status: r.status}), error => ({refused: error.name}))

// form has a form send text, whose answer goes into a frame.
const form = (address, text) => new Promise(resolve => {
  const frame = document.createElement('iframe')
  frame.name = 'frame' + document.querySelectorAll('iframe').length
  document.body.appendChild(frame)
  const form = document.body.appendChild(document.createElement('form'))
  Object.assign(form, {action: address, method: 'post', enctype: 'text/plain', target: frame.name})
  const [name, value] = [text.slice(0, -1) + ',"x":"', '"}']
  form.appendChild(Object.assign(document.createElement('input'), {type: 'hidden', name, value})) // name=value is JSON
  frame.onload = () => resolve('sent')
  form.submit()
})

// picture asks for an address as for a picture.
const picture = address => new Promise(resolve => {
  const image = new Image()
  image.onload = image.onerror = () => resolve('asked')
  image.src = address
})
