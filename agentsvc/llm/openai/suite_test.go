package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apis are the two protocols that the provider speaks.
var apis = map[string]bool{"chat": false, "responses": true}

func TestSuite(t *testing.T) {
	for name, responses := range apis {
		t.Run(name, func(t *testing.T) {
			llmtest.Run(t, func(t *testing.T, script []llmtest.Turn) llmtest.Subject {
				srv := llmtest.NewServer(t, script)
				p := provider(t, openai.Options{BaseURL: srv.URL + "/v1", Responses: responses})
				return llmtest.Subject{Provider: p, Open: srv.Open, Refuses: true}
			})
		})
	}
}

func provider(t *testing.T, opts openai.Options) *openai.Provider {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = llmtest.WayOut(t)
	}
	if opts.APIKey == "" {
		opts.APIKey = llmtest.Key
	}
	p, err := openai.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
