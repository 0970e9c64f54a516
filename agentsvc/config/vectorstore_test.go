package config

import "testing"

// TestVectorStoreKeyWarning checks that a key that would be sent without encryption to another machine is a warning.
func TestVectorStoreKeyWarning(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]string{
		"{type: qdrant, host: q.example.com, api_key: k}":                   "is sent without encryption: set enable_tls if the server has a certificate",
		"{type: qdrant, host: q.example.com, api_key: k, enable_tls: true}": "",
		"{type: weaviate, host: w.example.com, api_key: k, port: 443}":      "",
		"{type: pinecone, host: p.example.com, api_key: k}":                 "",
		"{type: chroma, host: localhost, api_key: k}":                       "",
		"{type: milvus, host: 127.0.0.1, api_key: k}":                       "",
		"{type: milvus, host: m.example.com}":                               "",
	} {
		cfg := mustParse(t, "llms: {default: {provider: scripted}}\nagents: {a: {}}\nvector_stores: {v: "+store+"}\n", Options{})
		got := ""
		for _, w := range cfg.Warnings() {
			got += w.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", store, got, want)
		}
	}
}
