// Package redact masks the secrets of a configuration that is shown, and restores them when the configuration comes back
// changed. It works on documents as [document.Decode] returns them; the types of package config say what is secret and
// where a secret is sent.
package redact

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// secretNames and secretMappings are keys whose values are secret where the document's types do not know them: text,
// and mappings of text.
var (
	secretNames    = []string{"api_key", "apikey", "authorization", "client_secret", "password", "secret", "token"}
	secretMappings = []string{"credentials", "env", "headers"}
)

// publicReferenceForm matches text that reveals nothing: variables without defaults, after the name of an
// authentication scheme if there is one.
var publicReferenceForm = regexp.MustCompile(`^(?:(?i:bearer|basic|token|apikey) +)?(?:\$\{[A-Za-z_][A-Za-z0-9_]*:?\})+$`)

// passwordInURLForm finds scheme://user:password@host in text that is not a URL as a whole.
var passwordInURLForm = regexp.MustCompile(`://[^/\s:@]*:[^/\s@]+@`)

// MaskSecrets returns a copy of a decoded document in which the secrets are replaced by a mask: api_key, password,
// secret, token, credentials, values of headers and env, in URLs the name, the password and credentials of the query,
// and text that contains a URL with a password. References such as ${NAME} are kept.
func MaskSecrets(doc map[string]any) map[string]any {
	masked, _ := maskValue(doc, reflect.TypeFor[config.Config](), false).(map[string]any)
	return masked
}

// maskValue returns a masked copy of v, which has type t in the document's types, nil if they do not know it. secret
// means that everything in v is secret.
func maskValue(v any, t reflect.Type, secret bool) any {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, x := range v {
			child, hidden := childType(t, key, x)
			m[key] = maskValue(x, child, secret || hidden)
		}
		return m
	case []any:
		var item reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			item = t.Elem()
		}
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = maskValue(x, item, secret)
		}
		return list
	case string:
		if a, ok := document.ParseAddress(v); ok && !secret {
			return maskAddress(a).String()
		}
		if v != "" && (secret || passwordInURLForm.MatchString(v)) && !publicReferenceForm.MatchString(v) {
			return document.Mask
		}
	case nil, bool:
	default:
		if secret {
			return document.Mask
		}
	}
	return v
}

// childType returns the type of key below t, and whether its value v is secret.
func childType(t reflect.Type, key string, v any) (reflect.Type, bool) {
	switch {
	case t != nil && t.Kind() == reflect.Struct:
		for _, f := range document.FieldsOf(t) {
			if f.Name == key {
				return t.Field(f.Index).Type, f.Secret
			}
		}
	case t != nil && t.Kind() == reflect.Map && t.Elem().Kind() != reflect.Interface:
		return t.Elem(), false
	}
	known := secretNames
	if _, ok := v.(map[string]any); ok {
		known = secretMappings
	}
	return nil, slices.Contains(known, strings.ToLower(key))
}
