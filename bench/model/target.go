package model

import (
	"fmt"

	"stoa/bench/load"
)

// Target is one streamed call straight to the model server at base, as a provider would make it.
func Target(base, name string) (load.Target, error) {
	return load.NewTarget(load.Spec{
		URL: base + "/v1/chat/completions",
		Body: fmt.Appendf(nil, `{"model":%q,"stream":true,"stream_options":{"include_usage":true},`+
			`"messages":[{"role":"user","content":"hello"}]}`, name),
		Want:  "[DONE]",
		First: token,
	})
}
