package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiVariants are the two protocols of the provider.
var apiVariants = map[string]bool{"chat": false, "responses": true}

func TestSuite(t *testing.T) {
	for name, responses := range apiVariants {
		t.Run(name, func(t *testing.T) {
			llmtest.RunSuite(t, func(t *testing.T, script []llmtest.Reply) llmtest.Subject {
				srv := llmtest.NewServer(t, script)
				p := newProvider(t, openai.Options{BaseURL: srv.URL + "/v1", Responses: responses})
				return llmtest.Subject{Provider: p, OpenRequests: srv.OpenRequests, ReportsRefusal: true}
			})
		})
	}
}

func newProvider(t *testing.T, opts openai.Options) *openai.Provider {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = llmtest.NewLocalClient(t)
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
