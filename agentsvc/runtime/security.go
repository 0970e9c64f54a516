package runtime

import (
	"maps"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
)

// securitySchemes returns the security schemes that an agent's card lists, by name, and the names of those that are
// required. They only describe: the server's own authentication decides.
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
