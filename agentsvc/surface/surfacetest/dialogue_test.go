package surfacetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestJoinStream checks that two deltas of one message are joined into one event, in the shape of each surface, and
// that other events are unchanged.
func TestJoinStream(t *testing.T) {
	t.Parallel()
	for name, x := range map[string][3]string{
		"ext": {
			`data: {"status":{"message":{"message_id":"m","parts":[{"text":"It "}]}}}`,
			`data: {"status":{"message":{"message_id":"m","parts":[{"text":"\"is\""}]}}}`,
			`data: {"status":{"message":{"message_id":"m","parts":[{"text":"It \"is\""}]}}}`,
		},
		"a completion": {
			`data: {"id":"c","choices":[{"index":0,"delta":{"content":"It "},"logprobs":null,"finish_reason":null}]}`,
			`data: {"id":"c","choices":[{"index":0,"delta":{"content":"is."},"logprobs":null,"finish_reason":null}]}`,
			`data: {"id":"c","choices":[{"index":0,"delta":{"content":"It is."},"logprobs":null,"finish_reason":null}]}`,
		},
	} {
		end := "data: [DONE]"
		got := joinStream(x[0] + "\n\n" + x[1] + "\n\n" + end + "\n")
		if diff := cmp.Diff(x[2]+"\n\n"+end+"\n", got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
