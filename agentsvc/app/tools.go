package app

import (
	"encoding/json"
	"errors"
	"fmt"

	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/function"
)

// toolKinds are the tools that can be configured, by type.
var toolKinds = map[string]func(b *builder, name string, t *config.Tool) (tool.Tool, error){
	"function": functionTool,
}

func (b *builder) allTools() (map[string]tool.Tool, error) {
	tools := make(map[string]tool.Tool, len(b.cfg.Tools))
	var errs []error
	for name, t := range b.cfg.Tools {
		if !t.Enabled {
			continue
		}
		build := toolKinds[t.Type]
		if build == nil {
			errs = append(errs, fmt.Errorf("tools.%s.type: %s is not available yet", name, t.Type))
			continue
		}
		built, err := build(b, name, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("tools.%s: %w", name, err))
			continue
		}
		tools[name] = built
	}
	return tools, errors.Join(errs...)
}

func functionTool(b *builder, name string, t *config.Tool) (tool.Tool, error) {
	o := function.Options{Name: name, Description: t.Description, HTTP: b.out.HTTP()}
	if t.Parameters != nil {
		schema, err := json.Marshal(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("parameters: %w", err)
		}
		o.Parameters = schema
	}
	return function.New(t.Handler, o)
}

// toolSet gathers the tools an agent names; one that is turned off is left out.
func (b *builder) toolSet(names []string, maxOutput int) (*tool.Set, error) {
	var tools []tool.Tool
	for _, name := range names {
		if t := b.tools[name]; t != nil {
			tools = append(tools, t)
		}
	}
	if len(tools) == 0 {
		return nil, nil
	}
	return tool.NewSet(tools, tool.Options{MaxOutput: maxOutput, Logger: b.log})
}
