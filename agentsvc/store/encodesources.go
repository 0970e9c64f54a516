package store

import "stoa/agentsvc"

type (
	// sourcesBody is a list of passages that the models of a turn are given.
	sourcesBody struct {
		List     []sourceBody `json:"list"`
		InPrompt bool         `json:"in_prompt,omitempty"`
	}
	// sourceBody has the fields of agentsvc.Source in the same order, so that one converts to the other.
	sourceBody struct {
		N        int    `json:"n"`
		Passage  string `json:"passage"`
		Store    string `json:"store"`
		Document string `json:"document"`
		Title    string `json:"title,omitempty"`
		Page     int    `json:"page,omitempty"`
		Heading  string `json:"heading,omitempty"`
		URL      string `json:"url,omitempty"`
		Quote    string `json:"quote"`
	}
)

// fromSources returns the stored form of a fact.
func fromSources(s *agentsvc.Sources) *sourcesBody {
	b := &sourcesBody{List: make([]sourceBody, len(s.List)), InPrompt: s.InPrompt}
	for i, source := range s.List {
		b.List[i] = sourceBody(source)
	}
	return b
}

// toSources is the inverse of fromSources.
func toSources(b *sourcesBody) *agentsvc.Sources {
	s := &agentsvc.Sources{List: make([]agentsvc.Source, len(b.List)), InPrompt: b.InPrompt}
	for i, source := range b.List {
		s.List[i] = agentsvc.Source(source)
	}
	return s
}
