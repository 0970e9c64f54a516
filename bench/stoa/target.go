package stoa

import (
	"fmt"

	"stoa/bench/load"
	"stoa/bench/model"
)

// Blocking is one blocking message:send to the agent that token may call.
func (s *Server) Blocking(token, agent, text string) (load.Target, error) {
	return load.NewTarget(load.Spec{
		URL:    s.URL + "/agents/" + agent,
		Header: map[string]string{"Authorization": "Bearer " + token},
		Body:   envelope("message:send", text),
		Want:   `completed`,
	})
}

// Decided is a request about the agent that reaches no store: once the caller's role has let it in, it is answered that
// there are no push notifications here.
func (s *Server) Decided(token, agent string) (load.Target, error) {
	return load.NewTarget(load.Spec{
		URL:    s.URL + "/agents/" + agent,
		Header: map[string]string{"Authorization": "Bearer " + token},
		Body:   []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/get","params":{"id":"none"}}`),
		Want:   `-32003`,
	})
}

// Stream is one message:stream to the agent that token may call. The answer is good if it ends with the whole text;
// its first token is the first line that holds first.
func (s *Server) Stream(token, agent, text, first, whole string) (load.Target, error) {
	return load.NewTarget(s.stream(token, agent, text, first, whole))
}

// Stamped is a streamed call of the agent "stamp", whose first token contains the time at which the model sent it.
func (s *Server) Stamped(token, text string) (load.Target, error) {
	spec := s.stream(token, model.Stamp, text, model.Mark, `"completed"`)
	spec.Stamped = true
	return load.NewTarget(spec)
}

func (s *Server) stream(token, agent, text, first, whole string) load.Spec {
	return load.Spec{
		URL:    s.URL + "/agents/" + agent,
		Header: map[string]string{"Authorization": "Bearer " + token, "Accept": "text/event-stream"},
		Body:   envelope("message:stream", text),
		Want:   whole,
		First:  first,
	}
}

func envelope(method, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":{"message":{"role":"user","parts":[{"type":"text","text":%q}]}}}`,
		method, text)
}
