package config

import (
	"errors"
	"reflect"
	"slices"

	"stoa/agentsvc/config/document"
	"stoa/tenancy/grant"
)

// Options configure [Parse]: whose document it is and where variables come from.
type Options struct {
	// File is the document's name in messages.
	File string
	// Lookup returns the value of ${NAME}. Nil has no variables.
	Lookup func(name string) (string, bool)
	// Tenant applies the rules for a tenant: the blocks server, logger and observability are refused, model keys are
	// its own, and host powers need Grants. Lookup then reads the app's secrets, never the environment.
	Tenant bool
	// Grants are the host powers that the operator granted to the app.
	Grants grant.List
	// OperatorKey returns the operator's key of a model provider by its environment variable, for an app with the
	// grant operator_models.
	OperatorKey func(name string) (string, bool)
}

// operatorBlocks are the top-level keys that a tenant's document may not have: they configure the process of all
// tenants.
var operatorBlocks = []string{"server", "logger", "observability"}

// Parse parses and checks a document, YAML or JSON. The returned Config is complete: defaults and variables are
// filled in, names refer to existing entries, and everything it requests is available. Otherwise it returns an
// [*document.Error] with all problems.
func Parse(src []byte, o Options) (*Config, error) {
	cfg, doc := readConfig(src, o)
	if err := doc.Err(o.File); err != nil {
		return nil, err // no caller can use a Config with problems
	}
	return cfg, nil
}

// Check reports all problems of a document at once, also those that only build finds, which builds the configuration
// and discards the result. Of a document with problems build gets what can be built with defaults in place of the
// values that have them, so that the problems of build are not hidden behind them. The error of Check is an
// [*document.Error], or one of another type that build returned.
func Check(src []byte, o Options, build func(*Config) error) error {
	cfg, doc := readConfig(src, o)
	if doc.CanBeRead() && !cfg.isTooLarge {
		cfg.removeUnsound(doc)
		if err := doc.AddErrors(build(cfg)); err != nil {
			return errors.Join(doc.Err(o.File), err)
		}
	}
	return doc.Err(o.File)
}

// readConfig parses and checks a document. The Config is usable if the Document has no problems.
func readConfig(src []byte, o Options) (*Config, *document.Document) {
	if o.Lookup == nil {
		o.Lookup = func(string) (string, bool) { return "", false }
	}
	missing := "is not set"
	if o.Tenant {
		missing = "is not among the app's secrets"
	}
	doc := document.Read(src, o.Lookup, missing)
	cfg := document.New[Config]()
	root := document.Location{Value: doc.Root}
	c := validation{Options: o, doc: doc, entryNames: map[string][]string{}}
	if doc.Root == nil {
		c.checkAgents(root, cfg.Agents)
		cfg.warnings = c.warnings
		return cfg, doc
	}
	if o.Tenant {
		refuseBlocks(doc, operatorBlocks)
	}
	doc.DecodeStruct(root, reflect.ValueOf(cfg).Elem())
	cfg.agentOrder = root.Child("agents").Keys()

	// The keys of vendors come from the operator's environment, never from a tenant's secrets of the same name.
	environment := o.Lookup
	if o.Tenant {
		environment = nil
	}
	for name, l := range cfg.LLMs {
		l.applyDefaults(environment)
		if o.Tenant && o.OperatorKey != nil && o.Grants.Has(grant.OperatorModels) {
			l.useOperatorKey(o.OperatorKey)
		}
		if isEmptyText(root.Child("llms").Child(name).Child("api_key")) {
			l.APIKey = ""
		}
	}
	for name, e := range cfg.Embedders {
		e.applyDefaults(environment)
		if isEmptyText(root.Child("embedders").Child(name).Child("api_key")) {
			e.APIKey = ""
		}
	}
	c.databases, c.llms, c.guardrails = cfg.Databases, cfg.LLMs, cfg.Guardrails
	for _, f := range document.FieldsOf(reflect.TypeFor[Config]()) {
		c.entryNames[f.Name] = slices.Sorted(slices.Values(root.Child(f.Name).Keys()))
	}
	c.defaultLLMMissing = cfg.LLMs[cfg.Defaults.LLM] == nil && !doc.HasValue(root.Child("defaults").Value, "llm")
	c.nesting = newNesting(cfg.Agents, cfg.agentOrder)
	c.webhooks, c.authEnabled = webhookAgents(cfg.Agents, cfg.agentOrder), cfg.Server.Auth.Enabled
	c.anonymous = !o.Tenant && (!c.authEnabled || !cfg.Server.Auth.RequireAuth)
	if cfg.Observability.Metrics.Enabled {
		c.metricsPath = cfg.Observability.Metrics.Endpoint
	}
	c.walkValue(root, reflect.ValueOf(cfg).Elem())
	c.checkAgents(root, cfg.Agents)
	c.checkCards(root.Child("agents"), cfg.Agents)
	cfg.isTooLarge = !c.checkCompiled(root)
	cfg.warnings = c.warnings

	// After the checks, so that they see what the document contains and not its defaults.
	for name, a := range cfg.Agents {
		a.applyDefaults(name, cfg.Defaults)
	}
	return cfg, doc
}

// refuseBlocks reports each of blocks that doc has, and removes it so that its content is not checked.
func refuseBlocks(doc *document.Document, blocks []string) {
	for _, name := range blocks {
		for i := 0; i+1 < len(doc.Root.Content); i += 2 {
			key := doc.Root.Content[i]
			if key.Value != name {
				continue
			}
			doc.AddProblem(document.Location{Path: (*document.Path)(nil).Field(name), Key: key}, "may not stand in the configuration of an app: it is the operator's")
			doc.Root.Content = append(doc.Root.Content[:i:i], doc.Root.Content[i+2:]...)
			break
		}
	}
}
