package tool

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"
)

// sharedSchemas finds the compiled schemas that are in use, so that an equal schema of an app is compiled once: each agent has a
// set with the tools that it names, and each turn one with the tools of its MCP servers, so that the same schemas were
// compiled for each. It keeps none alive.
type sharedSchemas struct {
	mu    sync.Mutex
	byKey map[schemaKey]weak.Pointer[compiledSchema] // guarded by mu
}

// schemaKey identifies a schema. Apps share none: its meter uses the processors on behalf of one app.
type schemaKey struct {
	app  string
	hash [sha256.Size]byte // of the schema's text
}

// schemaCache is the cache of this process.
var schemaCache = &sharedSchemas{byKey: map[schemaKey]weak.Pointer[compiledSchema]{}}

// getOrCompile returns the schema with the given key, from compile if there is none. Two goroutines may compile one at the
// same time; both then get a valid one.
func (c *sharedSchemas) getOrCompile(key schemaKey, compile func() (*compiledSchema, error)) (*compiledSchema, error) {
	if found := c.get(key); found != nil {
		return found, nil
	}
	made, err := compile()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := weak.Make(made)
	c.byKey[key] = p
	runtime.AddCleanup(made, func(key schemaKey) { c.forget(key, p) }, key)
	return made, nil
}

// get returns the schema with the given key, nil if none is in use.
func (c *sharedSchemas) get(key schemaKey) *compiledSchema {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key].Value()
}

// forget removes a schema that is no longer in use, unless it was replaced.
func (c *sharedSchemas) forget(key schemaKey, p weak.Pointer[compiledSchema]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] == p {
		delete(c.byKey, key)
	}
}
