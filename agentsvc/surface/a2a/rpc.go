package a2a

import (
	"net/http"
	"slices"
	"time"

	"stoa/agentsvc/surface"
)

// rpcMethod is a method of the JSON-RPC binding: what carries it out, exactly one of a method and an opening.
type rpcMethod struct {
	unary        unaryMethod
	stream       streamMethod
	idempotent   bool // it takes effect once under an Idempotency-Key
	waitsForTask bool // for a task
}

var sendMethod = rpcMethod{unary: handleSend, waitsForTask: true}

// versionMethods are the methods of each version by name. No name is in both.
var versionMethods = []struct {
	as      *versionCodec
	methods map[string]rpcMethod
}{
	{&codec10, map[string]rpcMethod{
		"SendMessage": sendMethod, "SendStreamingMessage": {stream: handleStream},
		"GetTask": {unary: handleGet}, "ListTasks": {unary: handleList}, "CancelTask": {unary: handleCancel, idempotent: true}, "SubscribeToTask": {stream: handleSubscribe},
		"CreateTaskPushNotificationConfig": {unary: handleSetPush}, "GetTaskPushNotificationConfig": {unary: handleGetPush},
		"ListTaskPushNotificationConfigs": {unary: handleListPushes}, "DeleteTaskPushNotificationConfig": {unary: handleDeletePush},
		"GetExtendedAgentCard": {unary: handleCard},
	}},
	{&codec03, map[string]rpcMethod{
		"message/send": sendMethod, "message/stream": {stream: handleStream},
		"tasks/get": {unary: handleGet}, "tasks/list": {unary: handleList}, "tasks/cancel": {unary: handleCancel, idempotent: true}, "tasks/resubscribe": {stream: handleSubscribe},
		"tasks/pushNotificationConfig/set": {unary: handleSetPush}, "tasks/pushNotificationConfig/get": {unary: handleGetPush},
		"tasks/pushNotificationConfig/list": {unary: handleListPushes}, "tasks/pushNotificationConfig/delete": {unary: handleDeletePush},
		"agent/getAuthenticatedExtendedCard": {unary: handleCard},
	}},
}

// MethodNames lists the JSON-RPC methods of every version.
func MethodNames() (names []string) {
	for _, d := range versionMethods {
		for name := range d.methods {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// newEndpoint answers JSON-RPC. Which version is spoken says the header, else the method's name. Where streams is set a message
// is answered with a stream whichever method sends it.
func newEndpoint(blockFor time.Duration, streams bool) surface.Handler {
	find := func(r *http.Request, name string) (surface.Method, error) {
		version, err := NegotiateVersion(r, surface.A2A10, surface.A2A03)
		if err != nil {
			return nil, err
		}
		for _, d := range versionMethods {
			m, ok := d.methods[name]
			if !ok || version != "" && version != d.as.version {
				continue
			}
			if streams && m.waitsForTask {
				m = rpcMethod{stream: handleStream}
			}
			return m.bindVersion(d.as, blockFor), nil
		}
		return nil, nil
	}
	return surface.Endpoint{FindMethod: find, EncodeErrorData: func(f surface.Fault) any { return faultDetails(f) }}.ServeRPC
}

// bindVersion returns m as the front door calls it.
func (m rpcMethod) bindVersion(codec *versionCodec, blockFor time.Duration) surface.Method {
	run := func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if m.stream != nil {
			rpc.AcceptEventStream()
		}
		c := &call{codec: codec, r: r, request: surface.RequestOf(r), blockFor: blockFor}
		if len(rpc.Params) > 0 {
			if err := rpc.DecodeParams(&c.params); err != nil {
				return err
			}
		}
		if err := c.resolveAgent(); err != nil {
			return err
		}
		if m.stream != nil {
			f, err := m.stream(c)
			if err != nil {
				return err
			}
			return c.writeEvents(w, f, surface.StreamEncoder{EncodeError: rpc.EncodeError}, rpc.EncodeResult)
		}
		if !m.waitsForTask {
			ctx, stop := c.request.WithDeadline(r.Context())
			defer stop()
			c.r = r.WithContext(ctx)
		}
		answer, err := m.unary(c)
		if err != nil {
			return err
		}
		return rpc.WriteResult(answer)
	}
	spelled := func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		return RespellField(run(w, r, rpc))
	}
	if m.idempotent {
		return surface.NewIdempotentMethod(spelled)
	}
	return spelled
}
