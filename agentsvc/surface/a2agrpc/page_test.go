package a2agrpc_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// TestPage makes the calls of docs/api/grpc.md.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/api/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	calls := regexp.MustCompile(`(?m)^grpcurl -plaintext (?:-H '(.*?): (.*?)' )?-d '(.*)' localhost:50051 (\S+)/(\S+)$`).FindAllStringSubmatch(string(page), -1)
	if len(calls) < 4 {
		t.Fatalf("the page holds the calls %q", calls)
	}
	for _, c := range calls {
		header, value, message, service, method := c[1], c[2], c[3], c[4], c[5]
		var headers []string
		if header != "" {
			headers = []string{header, value}
		}
		reported := strings.Join(callMethod(t, h.conn, service+"/"+method, message, headers...), "\n")
		if strings.Contains(reported, `{"code":`) || strings.Contains(method, "Send") && !strings.Contains(reported, "You said: hello") {
			t.Errorf("%s %s: %s", method, message, reported)
		}
	}
}
