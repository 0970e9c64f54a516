package a2a

import (
	"net/http"
	"slices"
	"time"

	"stoa/agentsvc/surface"
)

// rpcMethod is a method of the JSON-RPC binding: what carries it out, exactly one of a method and an opening.
type rpcMethod struct {
	answer method
	open   opening
	once   bool // it takes effect once under an Idempotency-Key
	waits  bool // for a task
}

var sendMessage = rpcMethod{answer: send, waits: true}

// dialects are the methods of each version by name. No name is in both.
var dialects = []struct {
	as      *vocabulary
	methods map[string]rpcMethod
}{
	{&v10, map[string]rpcMethod{
		"SendMessage": sendMessage, "SendStreamingMessage": {open: stream},
		"GetTask": {answer: get}, "ListTasks": {answer: list}, "CancelTask": {answer: cancel, once: true}, "SubscribeToTask": {open: subscribe},
		"CreateTaskPushNotificationConfig": {answer: setPush}, "GetTaskPushNotificationConfig": {answer: getPush},
		"ListTaskPushNotificationConfigs": {answer: listPushes}, "DeleteTaskPushNotificationConfig": {answer: dropPush},
		"GetExtendedAgentCard": {answer: card},
	}},
	{&v03, map[string]rpcMethod{
		"message/send": sendMessage, "message/stream": {open: stream},
		"tasks/get": {answer: get}, "tasks/list": {answer: list}, "tasks/cancel": {answer: cancel, once: true}, "tasks/resubscribe": {open: subscribe},
		"tasks/pushNotificationConfig/set": {answer: setPush}, "tasks/pushNotificationConfig/get": {answer: getPush},
		"tasks/pushNotificationConfig/list": {answer: listPushes}, "tasks/pushNotificationConfig/delete": {answer: dropPush},
		"agent/getAuthenticatedExtendedCard": {answer: card},
	}},
}

// Methods lists the JSON-RPC methods of every version.
func Methods() (names []string) {
	for _, d := range dialects {
		for name := range d.methods {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// endpoint answers JSON-RPC. Which version is spoken says the header, else the method's name. Where streams is set a message
// is answered with a stream whichever method sends it.
func endpoint(blockFor time.Duration, streams bool) surface.Handler {
	find := func(r *http.Request, name string) (surface.Method, error) {
		version, err := Spoken(r, surface.A2A10, surface.A2A03)
		if err != nil {
			return nil, err
		}
		for _, d := range dialects {
			m, ok := d.methods[name]
			if !ok || version != "" && version != d.as.version {
				continue
			}
			if streams && m.waits {
				m = rpcMethod{open: stream}
			}
			return m.bind(d.as, blockFor), nil
		}
		return nil, nil
	}
	return surface.Endpoint{Find: find, Data: func(f surface.Fault) any { return details(f) }}.Serve
}

// bind returns m as the front door calls it.
func (m rpcMethod) bind(as *vocabulary, blockFor time.Duration) surface.Method {
	run := func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if m.open != nil {
			rpc.Streams()
		}
		c := &call{as: as, r: r, v: surface.VisitOf(r), blockFor: blockFor}
		if len(rpc.Params) > 0 {
			if err := rpc.Decode(&c.params); err != nil {
				return err
			}
		}
		if err := c.address(); err != nil {
			return err
		}
		if m.open != nil {
			f, err := m.open(c)
			if err != nil {
				return err
			}
			return c.tell(w, f, surface.Dialect{Fault: rpc.Fault}, rpc.Envelope)
		}
		if !m.waits {
			ctx, stop := c.v.InTime(r.Context())
			defer stop()
			c.r = r.WithContext(ctx)
		}
		answer, err := m.answer(c)
		if err != nil {
			return err
		}
		return rpc.Reply(answer)
	}
	spelled := func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error { return Spelled(run(w, r, rpc)) }
	if m.once {
		return surface.Once(spelled)
	}
	return spelled
}
