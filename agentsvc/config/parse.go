package config

import (
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"stoa/tenancy/grant"
)

// Options say for whom a document is parsed.
type Options struct {
	// File is the document's name in messages.
	File string
	// Lookup returns what ${NAME} stands for. Nil knows no name.
	Lookup func(name string) (string, bool)
	// Tenant holds the document to what an app may do: no server, logger and observability, its own model
	// keys, and powers over the host only as far as Grants go. Lookup then reads the app's secrets.
	Tenant bool
	// Grants are what the operator granted to the app.
	Grants grant.List
	// Lend returns the operator's keys of models, for an app that was granted operator_models.
	Lend func(name string) (string, bool)
}

// operatorBlocks may not stand in the configuration of an app.
var operatorBlocks = []string{"server", "logger", "observability"}

// Parse reads a document, YAML or JSON. What it returns is complete: defaults and variables are filled in,
// names refer to what exists, and everything it asks for is available. Otherwise it returns an [*Error] with
// all that is wrong.
func Parse(src []byte, o Options) (*Config, error) {
	if o.Lookup == nil {
		o.Lookup = func(string) (string, bool) { return "", false }
	}
	missing := "is not set"
	if o.Tenant {
		missing = "is not among the app's secrets"
	}
	doc := read(src, o.Lookup, missing)
	cfg := newDefault(reflect.TypeFor[Config]()).Interface().(*Config)
	if doc.root == nil {
		return cfg.or(doc.problems.err(o.File))
	}
	if o.Tenant {
		doc.refuse(operatorBlocks)
	}
	root := spot{value: doc.root}
	doc.structure(root, reflect.ValueOf(cfg).Elem())
	cfg.agentOrder = keys(root.child("agents"))

	environment := o.Lookup
	if o.Tenant {
		environment = nil
	}
	for _, l := range cfg.LLMs {
		l.complete(environment)
		if o.Tenant && o.Lend != nil && o.Grants.Has(grant.OperatorModels) {
			l.borrow(o.Lend)
		}
	}
	for _, e := range cfg.Embedders {
		e.complete(environment)
	}
	c := checks{Options: o, doc: doc, names: map[string][]string{}, databases: cfg.Databases, llms: cfg.LLMs, guardrails: cfg.Guardrails, refused: map[string]bool{}}
	for _, f := range fieldsOf(reflect.TypeFor[Config]()) {
		c.names[f.name] = slices.Sorted(slices.Values(keys(root.child(f.name))))
	}
	c.defaultLLMMissing = cfg.LLMs[cfg.Defaults.LLM] == nil && !doc.has(root.child("defaults").value, "llm")
	c.nesting = newNesting(cfg.Agents, cfg.agentOrder)
	c.webhooks, c.auth = webhooks(cfg.Agents, cfg.agentOrder), cfg.Server.Auth.Enabled
	c.walk(root, reflect.ValueOf(cfg).Elem(), false)
	c.cards(root.child("agents"), cfg.Agents)
	c.tellWaiting()

	for name, a := range cfg.Agents {
		a.complete(name, cfg.Defaults)
	}
	return cfg.or(doc.problems.err(o.File))
}

func (c *Config) or(err error) (*Config, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// refuse makes a problem of each of blocks that stands in the document, and takes it out.
func (doc *document) refuse(blocks []string) {
	for _, name := range blocks {
		for i := 0; i+1 < len(doc.root.Content); i += 2 {
			key := doc.root.Content[i]
			if key.Value != name {
				continue
			}
			doc.problem(spot{&path{nil, name, fieldPart}, key, nil}, "may not stand in the configuration of an app: it is the operator's")
			doc.root.Content = append(doc.root.Content[:i:i], doc.root.Content[i+2:]...)
			break
		}
	}
}

// keys returns the keys of the mapping at s, in their order.
func keys(s spot) []string {
	var names []string
	if s.value != nil && s.value.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(s.value.Content); i += 2 {
			names = append(names, s.value.Content[i].Value)
		}
	}
	return names
}
