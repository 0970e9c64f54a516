package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// mask stands for a secret that is not shown.
const mask = "********"

// Keys whose values are secret where the vocabulary does not say what stands there: text, and mappings of text.
var (
	secretNames    = []string{"api_key", "apikey", "authorization", "client_secret", "password", "secret", "token"}
	secretMappings = []string{"credentials", "env", "headers"}
)

// publicReferenceForm is text that shows nothing: a variable without a default, after the name of a scheme at most.
var publicReferenceForm = regexp.MustCompile(`^(?:(?i:bearer|basic|token|apikey) +)?(?:\$\{[A-Za-z_][A-Za-z0-9_]*:?\})+$`)

// passwordInURLForm finds scheme://user:password@host in text that is more than an address.
var passwordInURLForm = regexp.MustCompile(`://[^/\s:@]*:[^/\s@]+@`)

// MaskSecrets returns a copy of a decoded document that can be shown: its secrets (api_key, password, secret, token,
// credentials, the values of headers and env, of addresses the name and password and the credentials in the query, and text
// around an address with a password) are replaced by a mask.
// References such as ${NAME} stay.
func MaskSecrets(doc map[string]any) map[string]any {
	masked, _ := maskValue(doc, reflect.TypeFor[Config](), false).(map[string]any)
	return masked
}

// maskValue masks v, which stands where the vocabulary has type t; nil is where it has none.
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
		if a, ok := parseAddress(v); ok && !secret {
			return a.maskSecrets().String()
		}
		if v != "" && (secret || passwordInURLForm.MatchString(v)) && !publicReferenceForm.MatchString(v) {
			return mask
		}
	case nil, bool:
	default:
		if secret {
			return mask
		}
	}
	return v
}

// childType returns the type below key in t, and whether v, which stands there, is secret.
func childType(t reflect.Type, key string, v any) (reflect.Type, bool) {
	switch {
	case t != nil && t.Kind() == reflect.Struct:
		for _, f := range fieldsOf(t) {
			if f.name == key {
				return t.Field(f.index).Type, f.secret
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
