package stoatest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
)

// Attack is a request whose body is built to take many times its size in memory. Its path belongs to the default
// app's agent "assistant", the webhooks /webhooks/attacked and /webhooks/open, or the admin API.
type Attack struct {
	Surface string // the protocol, such as "extension"
	Shape   string // of the body, such as "parts of 0"
	Method  string // "" = POST
	Path    string
	Header  map[string]string
	// As sent: for gRPC with its frame, for a WebSocket one text message.
	Body   []byte
	GRPC   bool // sent over HTTP/2
	Socket bool // sent as a message over a WebSocket
}

// Name returns the attack's name, which is unique.
func (a Attack) Name() string { return a.Surface + "/" + a.Shape }

// messageSurface describes how a list of parts, or a data value, is embedded in a request of a surface.
type messageSurface struct {
	name, path string
	wrapParts  func(list string) string
	wrapData   func(value string) string
	socket     bool
}

// rpcBody returns a JSON-RPC request with params in JSON.
func rpcBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

// surfaces are the surfaces that accept a message, with each version and binding.
var surfaces = []messageSurface{
	{
		name: "extension", path: "/agents/assistant",
		wrapParts: func(l string) string { return rpcBody("message:send", `{"message":{"parts":`+l+`}}`) },
		wrapData: func(v string) string {
			return rpcBody("message:send", `{"message":{"parts":[{"type":"data","data":{"v":`+v+`}}]}}`)
		},
	},
	{
		name: "v1", path: "/v1/agents/assistant/message:send",
		wrapParts: func(l string) string { return `{"message":{"parts":` + l + `}}` },
		wrapData:  func(v string) string { return `{"message":{"parts":[{"data":{"v":` + v + `}}]}}` },
	},
	{
		name: "A2A 1.0 JSON-RPC", path: "/a2a/assistant",
		wrapParts: func(l string) string {
			return rpcBody("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":`+l+`}}`)
		},
		wrapData: func(v string) string {
			return rpcBody("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"v":`+v+`}}]}}`)
		},
	},
	{
		name: "A2A 0.3 JSON-RPC", path: "/a2a/assistant",
		wrapParts: func(l string) string {
			return rpcBody("message/send", `{"message":{"messageId":"m","role":"user","parts":`+l+`}}`)
		},
		wrapData: func(v string) string {
			return rpcBody("message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"v":`+v+`}}]}}`)
		},
	},
	{
		name: "A2A 1.0 REST", path: "/a2a/assistant/message:send",
		wrapParts: func(l string) string { return `{"message":{"messageId":"m","role":"ROLE_USER","parts":` + l + `}}` },
		wrapData: func(v string) string {
			return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"v":` + v + `}}]}}`
		},
	},
	{
		name: "A2A 0.3 REST", path: "/a2a/assistant/v0.3/v1/message:send",
		wrapParts: func(l string) string { return `{"message":{"messageId":"m","role":"ROLE_USER","content":` + l + `}}` },
		wrapData: func(v string) string {
			return `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"data":{"data":{"v":` + v + `}}}]}}`
		},
	},
	{
		name: "OpenAI", path: "/openai/v1/chat/completions",
		wrapParts: func(l string) string { return `{"model":"assistant","messages":` + l + `}` },
		wrapData: func(v string) string {
			return `{"model":"assistant","messages":[{"role":"user","content":"hi"}],"metadata":{"v":` + v + `}}`
		},
	},
	{
		name: "OpenAI responses", path: "/openai/v1/responses",
		wrapParts: func(l string) string { return `{"model":"assistant","input":` + l + `}` },
		wrapData: func(v string) string {
			return `{"model":"assistant","input":"hi","metadata":{"v":` + v + `}}`
		},
	},
	{
		name: "MCP", path: "/mcp/assistant",
		wrapParts: func(l string) string { return rpcBody("tools/call", `{"name":"assistant","arguments":`+l+`}`) },
		wrapData: func(v string) string {
			return rpcBody("tools/call", `{"name":"assistant","arguments":{"message":"hi","v":`+v+`}}`)
		},
	},
	{
		name: "WebSocket", path: "/v1/agents/assistant/stream", socket: true,
		wrapParts: func(l string) string { return `{"message":{"parts":` + l + `}}` },
		wrapData:  func(v string) string { return `{"message":{"parts":[{"data":{"v":` + v + `}}]}}` },
	},
}

// BuildList returns a JSON list that repeats item, about size bytes long.
func BuildList(item string, size int) string {
	n := max(1, (size-2)/(len(item)+1))
	return "[" + strings.Repeat(item+",", n-1) + item + "]"
}

// BuildObject returns a JSON object with many small members, about size bytes long.
func BuildObject(size int) string {
	var b strings.Builder
	b.WriteString(`{"":0`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	b.WriteByte('}')
	return b.String()
}

// HostileJSON returns attacks in JSON on every surface that accepts a message, each about size bytes long: lists of
// invalid or empty parts, and data with many tiny values.
func HostileJSON(size int) (attacks []Attack) {
	zeros, objects, members := BuildList("0", size), BuildList("{}", size), BuildObject(size)
	nested := BuildList(`{"a":{}}`, size)
	for _, s := range surfaces {
		add := func(shape, body string) {
			attacks = append(attacks, Attack{Surface: s.name, Shape: shape, Path: s.path, Body: []byte(body), Socket: s.socket, Header: s.newHeaders()})
		}
		add("parts of 0", s.wrapParts(zeros))
		add("parts of {}", s.wrapParts(objects))
		add("data of {}", s.wrapData(objects))
		add("data of {a:{}}", s.wrapData(nested))
		add("data of members", s.wrapData(members))
	}
	return attacks
}

// newHeaders returns the headers of a request. MCP requires both media types in Accept.
func (s messageSurface) newHeaders() map[string]string {
	h := map[string]string{"Content-Type": "application/json"}
	if s.name == "MCP" {
		h["Accept"] = "application/json, text/event-stream"
	}
	return h
}

// HonestJSON returns ordinary messages of about size bytes: a long text and, if the surface has files, one in base64.
// Those of the extension surface also have characters that encoders escape, and long texts in metadata and data.
func HonestJSON(size int) (attacks []Attack) {
	text, _ := json.Marshal(strings.Repeat("a long text ", size/12))
	file, _ := json.Marshal(base64.StdEncoding.EncodeToString(make([]byte, size/4*3)))
	for _, c := range []struct{ surface, text, file string }{
		{"extension", `[{"type":"text","text":%s}]`, `[{"type":"file","name":"f","data":%s}]`},
		{"v1", `[{"text":%s}]`, `[{"file":{"name":"f","file_with_bytes":%s}}]`},
		{"A2A 1.0 JSON-RPC", `[{"text":%s}]`, `[{"raw":%s}]`},
		{"A2A 0.3 JSON-RPC", `[{"kind":"text","text":%s}]`, `[{"kind":"file","file":{"bytes":%s}}]`},
		{"A2A 1.0 REST", `[{"text":%s}]`, `[{"raw":%s}]`},
		{"A2A 0.3 REST", `[{"text":%s}]`, `[{"file":{"fileWithBytes":%s}}]`},
		{"OpenAI", `[{"role":"user","content":%s}]`, ""},
		{"MCP", `{"message":%s}`, ""},
		{"WebSocket", `[{"text":%s}]`, `[{"file":{"name":"f","file_with_bytes":%s}}]`},
	} {
		for _, s := range surfaces {
			if s.name != c.surface {
				continue
			}
			a := Attack{Surface: s.name, Shape: "text", Path: s.path, Socket: s.socket, Header: s.newHeaders()}
			a.Body = []byte(s.wrapParts(fmt.Sprintf(c.text, text)))
			attacks = append(attacks, a)
			if c.file != "" {
				a.Shape, a.Body = "file", []byte(s.wrapParts(fmt.Sprintf(c.file, file)))
				attacks = append(attacks, a)
			}
		}
	}
	for shape, params := range map[string]string{
		"text of <":          `{"message":{"parts":[{"type":"text","text":"` + strings.Repeat("<", size) + `"}]}}`,
		"text of no UTF-8":   `{"message":{"parts":[{"type":"text","text":"` + strings.Repeat("\xff", size) + `"}]}}`,
		"text of separators": `{"message":{"parts":[{"type":"text","text":"` + strings.Repeat("\u2028", size/3) + `"}]}}`,
		"metadata of <":      `{"message":{"metadata":{"k":"` + strings.Repeat("<", size) + `"},"parts":[{"type":"text","text":"hi"}]}}`,
		"metadata":           `{"message":{"metadata":{"k":"` + strings.Repeat("a", size) + `"},"parts":[{"type":"text","text":"hi"}]}}`,
		"text in a context":  `{"message":{"context_id":"c","parts":[{"type":"text","text":"` + strings.Repeat("a", size) + `"}]}}`,
		"data":               `{"message":{"parts":[{"type":"data","data":{"k":"` + strings.Repeat("a", size) + `"}}]}}`,
	} {
		s := surfaces[0]
		attacks = append(attacks, Attack{Surface: s.name, Shape: shape, Path: s.path, Header: s.newHeaders(), Body: []byte(rpcBody("message:send", params))})
	}
	return attacks
}

// HostileNonMessages returns attacks on the surfaces without JSON messages: configurations, webhook deliveries and
// gRPC. admin is the operator's secret.
func HostileNonMessages(size int, admin string) (attacks []Attack) {
	yaml, _ := json.Marshal("a: " + BuildList("{}", size/2))
	flow, _ := json.Marshal("a: " + BuildList("[]", size/2))
	operator := map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + admin}
	for shape, config := range map[string]string{"YAML of {}": string(yaml), "YAML of []": string(flow), "JSON of {}": BuildList("{}", size)} {
		attacks = append(attacks, Attack{Surface: "admin", Shape: shape, Path: "/admin/apps", Header: operator, Body: []byte(`{"name":"attacked","config":` + config + `}`)})
	}
	attacks = append(attacks,
		Attack{Surface: "webhook", Shape: "unsigned {}", Path: "/webhooks/attacked", Body: []byte(BuildList("{}", size)), Header: map[string]string{"X-Signature": "sha256=" + strings.Repeat("00", 32), "Content-Type": "application/json"}},
		Attack{Surface: "webhook", Shape: "open {}", Path: "/webhooks/open", Body: []byte(BuildList("{}", size)), Header: map[string]string{"Content-Type": "application/json"}},
	)
	for _, v := range []struct{ name, path string }{{"gRPC 1.0", "/lf.a2a.v1.A2AService/SendMessage"}, {"gRPC 0.3", "/a2a.v1.A2AService/SendMessage"}} {
		for shape, message := range ProtoMessages(v.name == "gRPC 0.3", size) {
			attacks = append(attacks, Attack{Surface: v.name, Shape: shape, Path: v.path, GRPC: true, Body: FrameGRPC(false, message)})
		}
	}
	return attacks
}

// FrameGRPC returns a gRPC message with its 5-byte frame: the compression flag and the length.
func FrameGRPC(compressed bool, message []byte) []byte {
	b := make([]byte, 5, 5+len(message))
	if compressed {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// protoField returns a length-delimited field of a Protocol Buffers message.
func protoField(number int, value []byte) []byte {
	b := binary.AppendUvarint(nil, uint64(number)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// ProtoMessages returns SendMessage requests of about size bytes by shape: empty parts, and data with empty values.
// v03 selects version 0.3 of the protocol, whose field numbers differ.
func ProtoMessages(v03 bool, size int) map[string][]byte {
	empty := strings.Repeat(string(protoField(1, nil)), size/2) // values of a list
	list := protoField(6, []byte(empty))                        // Value.list_value
	head := protoField(1, []byte("m"))                          // message_id
	parts, data := 5, list                                      // Message.parts, Part.data
	if v03 {
		// DataPart.data is a Struct, which has one member.
		member := append(protoField(1, []byte("v")), protoField(2, list)...)
		data = protoField(1, protoField(1, member))
	}
	// Message.role, a varint field.
	role := []byte{4 << 3, 1}
	many := strings.Repeat(string(protoField(parts, nil)), size/2)
	one := protoField(parts, protoField(map[bool]int{true: 3, false: 4}[v03], data))
	return map[string][]byte{
		"empty parts":  protoField(map[bool]int{true: 1, false: 2}[v03], append(append(append([]byte{}, head...), role...), many...)),
		"empty values": protoField(map[bool]int{true: 1, false: 2}[v03], append(append(append([]byte{}, head...), role...), one...)),
	}
}
