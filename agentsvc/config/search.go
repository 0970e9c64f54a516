package config

import "stoa/agentsvc/config/document"

// Search says how a document store is searched.
type Search struct {
	// TopK is how many passages are returned where the caller does not say.
	TopK int `yaml:"top_k" jsonschema:"minimum=1,maximum=100,default=10"`
	// Threshold is the least similarity of a passage's vector to the query's, from 0 to 1 (cosine).
	Threshold float64 `yaml:"threshold" jsonschema:"minimum=0,maximum=1,default=0"`
	// EnableHyDE searches also with an answer that a model makes up.
	EnableHyDE bool `yaml:"enable_hyde" jsonschema:"default=false"`
	// HyDELLM is the model that makes it up.
	HyDELLM string `yaml:"hyde_llm" ref:"llms"`
	// EnableRerank lets a model put the passages in order.
	EnableRerank bool `yaml:"enable_rerank" jsonschema:"default=false"`
	// RerankLLM is the model that puts them in order. Without it, it is `defaults.llm`.
	RerankLLM string `yaml:"rerank_llm" ref:"llms"`
	// RerankMaxResults is how many passages it gets to see.
	RerankMaxResults int `yaml:"rerank_max_results" jsonschema:"minimum=1,maximum=100,default=20"`
	// EnableMultiQuery searches also with other wordings of the query, which a model finds.
	EnableMultiQuery bool `yaml:"enable_multi_query" jsonschema:"default=false"`
	// MultiQueryLLM is the model that finds the wordings. Without it, it is `defaults.llm`.
	MultiQueryLLM string `yaml:"multi_query_llm" ref:"llms"`
	// MultiQueryCount is how many wordings it finds.
	MultiQueryCount int `yaml:"multi_query_count" jsonschema:"minimum=1,maximum=10,default=3"`
}

// checkRules checks that each part that needs a model has one.
func (sea *Search) checkRules(c *validation, s document.Location) {
	if sea.EnableHyDE && !c.doc.HasValue(s.Value, "hyde_llm") {
		c.addProblem(s.Child("enable_hyde"), "needs hyde_llm")
	}
	if sea.EnableRerank && c.defaultLLMMissing && !c.doc.HasValue(s.Value, "rerank_llm") {
		c.addProblem(s.Child("enable_rerank"), "needs rerank_llm or defaults.llm")
	}
	if sea.EnableMultiQuery && c.defaultLLMMissing && !c.doc.HasValue(s.Value, "multi_query_llm") {
		c.addProblem(s.Child("enable_multi_query"), "needs multi_query_llm or defaults.llm")
	}
}
