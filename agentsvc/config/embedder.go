package config

import "stoa/agentsvc/config/document"

// Embedder turns text into vectors.
type Embedder struct {
	// Provider is the vendor. hashing is none: it compares words and parts of words, offline, for tests and demonstrations.
	Provider string `yaml:"provider" jsonschema:"enum=openai,enum=ollama,enum=cohere,enum=hashing,default=ollama"`
	// Model is the vendor's name of the model. Without it: openai text-embedding-3-small, ollama
	// nomic-embed-text, cohere embed-v4.0.
	Model string `yaml:"model" only:"provider=openai|ollama|cohere"`
	// APIKey is the vendor's key. In the operator's file a missing key is read from OPENAI_API_KEY or
	// COHERE_API_KEY; an app brings its own.
	APIKey string `yaml:"api_key" secret:"true" to:"provider,base_url" only:"provider=openai|ollama|cohere"`
	// BaseURL is the address of the API, where it is not the vendor's own. In the operator's file a missing address of
	// ollama is read from OLLAMA_HOST.
	BaseURL string `yaml:"base_url" only:"provider=openai|ollama|cohere"`
	// Dimension is the length of the vectors to ask for. Without it, it is that of the first vector that comes; of
	// hashing 256.
	Dimension int `yaml:"dimension" jsonschema:"minimum=0,maximum=4096"`
	// Timeout is how long one request may take, in seconds.
	Timeout int `yaml:"timeout" jsonschema:"minimum=1,default=30" only:"provider=openai|ollama|cohere"`
	// BatchSize is how many texts go into one request; cohere takes 96 at most.
	BatchSize int `yaml:"batch_size" jsonschema:"minimum=1,default=100" only:"provider=openai|ollama|cohere"`
	// InputType is the kind of text that cohere is asked to embed. Without it: search_document for what is kept,
	// search_query for questions.
	InputType string `yaml:"input_type" only:"provider=cohere"`
	// OutputDimension asks cohere for vectors of this length.
	OutputDimension int `yaml:"output_dimension" jsonschema:"minimum=0,maximum=4096" only:"provider=cohere"`
	// Truncate is the end at which cohere cuts a text that is too long; NONE refuses it.
	Truncate string `yaml:"truncate" jsonschema:"enum=NONE,enum=START,enum=END" only:"provider=cohere"`
}

// embedderKeyVariables are the environment variables with the operator's keys, by provider.
var embedderKeyVariables = map[string]string{"openai": "OPENAI_API_KEY", "cohere": "COHERE_API_KEY"}

// applyDefaults sets the operator's key and the address of an Ollama server if the document has none. lookup is the
// operator's environment, nil for a tenant.
func (e *Embedder) applyDefaults(lookup func(string) (string, bool)) {
	if name := embedderKeyVariables[e.Provider]; name != "" && lookup != nil && e.APIKey == "" {
		e.APIKey, _ = lookup(name)
	}
	if e.BaseURL == "" && e.Provider == "ollama" {
		e.BaseURL = ollamaAddress(lookup)
	}
}

// checkRules checks address, name and key. A missing key is a problem unless base_url names another server, which may
// need none; a tenant always supplies its own.
func (e *Embedder) checkRules(c *validation, s document.Location) {
	c.checkAddress(s.Child("base_url"), e.BaseURL)
	c.checkName(s.Child("model"), e.Model)
	if e.Dimension > 0 && e.OutputDimension > 0 && e.Dimension != e.OutputDimension {
		c.addProblem(s.Child("dimension"), "is not the output_dimension beside it")
	}
	name := embedderKeyVariables[e.Provider]
	switch {
	case name == "" || c.doc.HasValue(s.Value, "api_key") || e.APIKey != "":
	case !c.Tenant && e.BaseURL == "" && isEmptyText(s.Child("api_key")):
		c.addProblem(s.Child("api_key"), "is empty: give it a value, or leave it out to use "+name)
	case c.Tenant:
		c.addProblem(s, "api_key is needed: an app brings its own key")
	case e.BaseURL == "":
		c.addProblem(s, "api_key is needed: set it, or "+name+" in the environment")
	}
}
