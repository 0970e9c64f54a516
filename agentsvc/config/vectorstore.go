package config

import (
	"net"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc/config/document"
)

// VectorStore keeps vectors and finds the nearest. docs/vector-stores.md describes each type.
type VectorStore struct {
	// Type is the kind of store. chromem is part of this process.
	Type string `yaml:"type" jsonschema:"enum=chromem,enum=qdrant,enum=pinecone,enum=weaviate,enum=milvus,enum=chroma,default=chromem"`
	// Host is the machine it runs on; for pinecone that of the index.
	Host string `yaml:"host" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// Port is the port it listens on. Without it: qdrant 6334 (gRPC), pinecone 443, weaviate 8080, milvus 19530, chroma
	// 8000.
	Port int `yaml:"port" jsonschema:"minimum=0,maximum=65535" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// APIKey is the store's key.
	APIKey string `yaml:"api_key" secret:"true" to:"type,host,port,enable_tls" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// EnableTLS encrypts the connection. Port 443 is always encrypted.
	EnableTLS bool `yaml:"enable_tls" jsonschema:"default=false" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// PersistPath is the folder that chromem keeps its vectors in, below one of the app's name. Without it, they live in
	// memory. It is allowed in the operator's file only.
	PersistPath string `yaml:"persist_path" only:"type=chromem" grant:"filesystem"`
	// Compress makes these files smaller.
	Compress bool `yaml:"compress" jsonschema:"default=false" only:"type=chromem"`
	// Collection begins the names of the store's collections. Without it, stoa.
	Collection string `yaml:"collection"`
}

// collectionForm is the form of the beginning of collections' names, which all types of stores accept.
var collectionForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,39}$`)

// checkCollection checks the beginning of collections' names at s.
func (val *validation) checkCollection(s document.Location, name string) {
	if name != "" && !val.doc.IsFromVariable(s.Value) && !collectionForm.MatchString(name) {
		val.addProblem(s, "must be a letter, followed by at most 39 letters, digits and underscores")
	}
}

// remoteStores are the types of stores on other machines.
var remoteStores = []string{"qdrant", "pinecone", "weaviate", "milvus", "chroma"}

// checkRules checks the address, and refuses a folder of a tenant for the reason of [Chromem].
func (v *VectorStore) checkRules(c *validation, s document.Location) {
	c.checkCollection(s.Child("collection"), v.Collection)
	if v.Type == "chromem" {
		if c.Tenant && v.PersistPath != "" && c.isGranted("filesystem") {
			c.addProblem(s.Child("persist_path"), "stands in the operator's file only: the vectors of an app live in the database and in memory")
		}
		if v.Compress && v.PersistPath == "" {
			c.addProblem(s.Child("compress"), "has no effect without persist_path")
		}
	}
	if !slices.Contains(remoteStores, v.Type) {
		return
	}
	c.checkHost(s, v.Host)
	if v.Type == "pinecone" && !c.doc.HasValue(s.Value, "api_key") {
		c.addProblem(s, "api_key is needed: Pinecone answers no request without one")
	}
	if v.APIKey != "" && !v.EnableTLS && v.Port != 443 && v.Type != "pinecone" && !isLoopback(v.Host) {
		c.addWarning(s.Child("api_key"), "is sent without encryption: set enable_tls if the server has a certificate")
	}
	if v.Type == "qdrant" && v.Port == 6333 {
		c.addProblem(s.Child("port"), "is that of Qdrant's REST API; Stoa speaks gRPC with it, usually on port 6334")
	}
}

// isLoopback reports whether host names this machine itself.
func isLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
