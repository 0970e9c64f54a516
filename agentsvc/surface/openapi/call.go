package openapi

import (
	"slices"
	"strings"
	"unicode"
)

// rpcCall is a method of a JSON-RPC endpoint. Params and Result are names in Schemas.
type rpcCall struct {
	// Methods are the names of the method; those after the first are other spellings.
	Methods []string `json:"methods"`
	Params  string   `json:"params"`
	// Scopes are those of which the caller needs one.
	Scopes []string `json:"scopes"`
	// Optional says that the request may have no params.
	Optional bool `json:"optional"`
	// Result is the schema of the member result, "" for a method without a response of JSON-RPC: its stream has events of
	// their own, or it is a notification.
	Result string `json:"result"`
}

// addCallSchemas adds the schemas of the bodies and answers of JSON-RPC endpoints: for an endpoint NAME the request NAME, which
// the member method decides, a schema for each of its methods, and the response NAMEAnswer. The result of a response is any of
// the results of the methods, because nothing in the response says which method it answers.
func (d descriptions) addCallSchemas(schemas jsonObject) {
	for name, calls := range d.Calls {
		mapping := jsonObject{}
		var requests, answers []any
		var results []string
		for _, c := range calls {
			request := name + upperCamelCase(c.Methods[0])
			schemas[request] = c.newRequest()
			requests = append(requests, schemaRef(request))
			for _, method := range c.Methods {
				mapping[method] = schemaRef(request)["$ref"]
			}
			if c.Result != "" {
				results = append(results, c.Result)
			}
		}
		slices.Sort(results)
		for _, result := range slices.Compact(results) {
			answers = append(answers, schemaRef(result))
		}
		schemas[name] = jsonObject{"oneOf": requests, "discriminator": jsonObject{"propertyName": "method", "mapping": mapping}}
		schemas[name+"Result"] = newEnvelope([]string{"id", "result"}, jsonObject{"result": jsonObject{"anyOf": answers}})
		schemas[name+"Answer"] = jsonObject{"oneOf": []any{schemaRef(name + "Result"), schemaRef("RPCFailure")}}
	}
}

// newRequest returns the schema of a request of the method.
func (c rpcCall) newRequest() jsonObject {
	required := []string{"method"}
	if !c.Optional {
		required = append(required, "params")
	}
	request := newEnvelope(required, jsonObject{"method": jsonObject{"type": "string", "enum": c.Methods}, "params": schemaRef(c.Params)})
	request["description"] = describeScopes(c.Scopes)
	return request
}

// newEnvelope returns the schema of a request or a response of JSON-RPC with members.
func newEnvelope(required []string, members jsonObject) jsonObject {
	members["jsonrpc"] = jsonObject{"type": "string", "const": "2.0"}
	members["id"] = schemaRef("RPCID")
	return jsonObject{"type": "object", "properties": members, "required": append([]string{"jsonrpc"}, required...)}
}

// upperCamelCase returns the name of a method as a part of the name of a schema: MessageSend for message:send.
func upperCamelCase(method string) string {
	var b strings.Builder
	for _, word := range nonAlphanumeric.Split(method, -1) {
		for i, r := range word {
			if i == 0 {
				r = unicode.ToUpper(r)
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}
