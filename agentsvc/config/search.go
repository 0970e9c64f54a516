package config

import "stoa/agentsvc/config/document"

// Search says how a document store is searched.
type Search struct {
	// TopK is how many findings are returned.
	TopK int `yaml:"top_k" jsonschema:"minimum=1,default=10"`
	// Threshold is how alike a finding must be, from 0 to 1.
	Threshold float64 `yaml:"threshold" jsonschema:"minimum=0,maximum=1,default=0"`
	// EnableHyDE searches with an answer that a model made up.
	EnableHyDE bool `yaml:"enable_hyde" jsonschema:"default=false"`
	// HyDELLM is the model that makes it up.
	HyDELLM string `yaml:"hyde_llm" ref:"llms"`
	// EnableRerank lets a model put the findings in order.
	EnableRerank bool `yaml:"enable_rerank" jsonschema:"default=false"`
	// RerankLLM is the model that puts them in order.
	RerankLLM string `yaml:"rerank_llm" ref:"llms"`
	// RerankMaxResults is how many findings it gets to see.
	RerankMaxResults int `yaml:"rerank_max_results" jsonschema:"minimum=1,default=20"`
	// EnableMultiQuery searches with several wordings of the question.
	EnableMultiQuery bool `yaml:"enable_multi_query" jsonschema:"default=false"`
	// MultiQueryLLM is the model that finds the wordings.
	MultiQueryLLM string `yaml:"multi_query_llm" ref:"llms"`
	// MultiQueryCount is how many wordings it finds.
	MultiQueryCount int `yaml:"multi_query_count" jsonschema:"minimum=1,default=3"`
}

// checkRules checks that HyDE has a model.
func (sea *Search) checkRules(c *validation, s document.Location) {
	if sea.EnableHyDE && !c.doc.HasValue(s.Value, "hyde_llm") {
		c.addProblem(s.Child("enable_hyde"), "needs hyde_llm")
	}
}
