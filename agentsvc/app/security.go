package app

import (
	"maps"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
)

// securitySchemes are the credentials that an agent's card names, by name, and the names of those that callers must show.
func securitySchemes(s *config.Security) (all []agentsvc.Scheme, require []string) {
	if s == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.Schemes)) {
		x := agentsvc.Scheme{Name: name, Format: s.Schemes[name].BearerFormat}
		if s.Schemes[name].Type == "apiKey" {
			x.Header = s.Schemes[name].Name
		}
		all = append(all, x)
	}
	return all, s.Require
}
