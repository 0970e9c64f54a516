package a2a

import (
	"cmp"
	"net/http"
	"slices"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/agentsvc/surface/stream"
	"stoa/authz"
)

// rpcMethod is a method of the JSON-RPC binding. Exactly one of unary and stream is set.
type rpcMethod struct {
	unary        unaryMethod
	stream       streamMethod
	idempotent   bool // with an Idempotency-Key it takes effect once, and a repeated call gets the recorded response
	waitsForTask bool // no deadline is set: the response may wait blockFor for its task
	sends        bool // it sends a message
	// wide is the scope that is enough for a caller without agents:call, "" = none is.
	wide authz.Scope
	// refusesCallWithoutMessage makes a missing message an invalid request (-32600), not invalid params (-32602).
	refusesCallWithoutMessage bool
	idOptional                bool // a message may have no messageId
}

// sendMethod is not marked idempotent: the task service itself deduplicates messages by Idempotency-Key.
var sendMethod = rpcMethod{unary: handleSend, waitsForTask: true, sends: true}

// The methods that both versions have under different names.
var (
	getMethod       = rpcMethod{unary: handleGet, wide: authz.TasksRead}
	listMethod      = rpcMethod{unary: handleList, wide: authz.TasksRead}
	cancelMethod    = rpcMethod{unary: handleCancel, idempotent: true, wide: authz.TasksCancel}
	subscribeMethod = rpcMethod{stream: handleSubscribe, wide: authz.TasksRead}
	cardMethod      = rpcMethod{unary: handleCard, wide: authz.AgentsRead}
)

// versionMethods are the methods of each version by name. The versions share no name, so the name alone decides the
// version if the request has no A2A-Version header.
var versionMethods = []struct {
	as      *versionCodec
	methods map[string]rpcMethod
}{
	{&codec10, map[string]rpcMethod{
		"SendMessage": sendMethod, "SendStreamingMessage": {stream: handleStream, sends: true},
		"GetTask": getMethod, "ListTasks": listMethod, "CancelTask": cancelMethod, "SubscribeToTask": subscribeMethod,
		"CreateTaskPushNotificationConfig": {unary: handleSetPush}, "GetTaskPushNotificationConfig": {unary: handleGetPush},
		"ListTaskPushNotificationConfigs": {unary: handleListPushes}, "DeleteTaskPushNotificationConfig": {unary: handleDeletePush},
		"GetExtendedAgentCard": cardMethod,
	}},
	{&codec03, map[string]rpcMethod{
		"message/send": sendMethod, "message/stream": {stream: handleStream, sends: true},
		"tasks/get": getMethod, "tasks/list": listMethod, "tasks/cancel": cancelMethod, "tasks/resubscribe": subscribeMethod,
		"tasks/pushNotificationConfig/set": {unary: handleSetPush}, "tasks/pushNotificationConfig/get": {unary: handleGetPush},
		"tasks/pushNotificationConfig/list": {unary: handleListPushes}, "tasks/pushNotificationConfig/delete": {unary: handleDeletePush},
		"agent/getAuthenticatedExtendedCard": cardMethod,
	}},
}

// MethodNames returns the JSON-RPC methods of all versions, sorted. Tests use it to cover every method.
func MethodNames() (names []string) {
	for _, d := range versionMethods {
		for name := range d.methods {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hasPlainErrors reports whether the root endpoints answer an error of a method as the specification of Stoa's own
// surfaces has it: with the code's standard message, and an object with the detail as data. The methods of version 1.0
// have A2A's form there as well, which their clients expect.
func hasPlainErrors(method string) bool { return versionMethods[0].methods[method].isZero() }

// isZero reports whether m is no method.
func (m rpcMethod) isZero() bool { return m.unary == nil && m.stream == nil }

// newEndpoint returns the handler of a JSON-RPC endpoint. The version is that of the A2A-Version header or, without
// it, the one that has the method. A method of the other version than the header's is unknown. With streams (the
// path /stream) the methods that send a message always answer with a stream. isRoot says that the path names no agent.
func newEndpoint(o Options, isRoot, streams bool) surface.Handler {
	find := func(r *http.Request, name string) (jsonrpc.Method, error) {
		version, err := NegotiateVersion(r, agentcard.A2A10, agentcard.A2A03)
		if err != nil {
			return nil, err
		}
		for _, d := range versionMethods {
			m, ok := d.methods[name]
			if !ok || version != "" && version != d.as.version {
				continue
			}
			if streams && m.waitsForTask {
				m = rpcMethod{stream: handleStream, sends: true}
			}
			m.refusesCallWithoutMessage, m.idOptional = isRoot && hasPlainErrors(name), isRoot
			return m.bindVersion(d.as, o), nil
		}
		return nil, nil
	}
	e := jsonrpc.Endpoint{FindMethod: find, EncodeErrorData: func(f apierror.Fault) any { return faultDetails(f) }}
	if isRoot {
		e.HasPlainErrors = hasPlainErrors
	}
	return e.Serve
}

// bindVersion returns m as a [jsonrpc.Method] for one version: it decodes the params, resolves the agent, sets the
// deadline for methods that do not wait for a task, and writes the result or the stream.
func (m rpcMethod) bindVersion(codec *versionCodec, o Options) jsonrpc.Method {
	run := func(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
		if m.stream != nil {
			// Called before anything can fail, since it decides whether an error is written as JSON or as an event.
			rpc.AcceptEventStream()
		}
		c := &call{codec: codec, r: r, request: surface.RequestOf(r), options: o, unanswered: rpc.IsNotification(), needsMessage: m.sends && m.refusesCallWithoutMessage, idOptional: m.idOptional}
		if len(rpc.Params) > 0 {
			if err := decodeParams(rpc, codec, &c.params); err != nil {
				return cmp.Or(m.authorize(c), err)
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
			if c.unanswered {
				f.Close()
				return rpc.WriteResult(nil)
			}
			return c.writeEvents(w, f, stream.Encoder{EncodeError: rpc.EncodeError}, rpc.EncodeResult)
		}
		// The route has no deadline (see Routes), so the method sets it.
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
	spelled := func(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
		return RespellField(run(w, r, rpc))
	}
	if m.idempotent {
		return jsonrpc.NewIdempotentMethod(spelled)
	}
	return spelled
}

// authorize returns the refusal of a caller who may not use the method: what is wrong with params is only reported to
// others.
func (m rpcMethod) authorize(c *call) error {
	if err := c.resolveAgent(); err != nil {
		return err
	}
	switch m.wide {
	case "":
		return c.request.AuthorizeAgent(c.ctx(), authz.AgentsCall, c.agent)
	case authz.AgentsRead:
		return c.authorizeCard()
	}
	_, err := c.request.ResolveAgentVisibility(c.ctx(), m.wide, c.agent)
	return err
}

// decodeParams decodes the params of a call as its version demands.
func decodeParams(rpc *jsonrpc.Call, codec *versionCodec, p *params) error {
	if codec.refusesUnknown {
		return rpc.DecodeKnownParams(p, "configuration")
	}
	return rpc.DecodeParams(p)
}
