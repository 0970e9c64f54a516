package config

// VectorStore keeps vectors and finds the nearest.
type VectorStore struct {
	// Type is the kind of store.
	Type string `yaml:"type" jsonschema:"enum=chromem,enum=qdrant,enum=pinecone,enum=weaviate,enum=milvus,enum=chroma,default=chromem"`
	// Host is the machine it runs on.
	Host string `yaml:"host" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// Port is the port it listens on. Without it, the store's usual one.
	Port int `yaml:"port" jsonschema:"minimum=0,maximum=65535" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// APIKey is the store's key.
	APIKey string `yaml:"api_key" secret:"true" to:"type,host,port,enable_tls" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// EnableTLS encrypts the connection.
	EnableTLS bool `yaml:"enable_tls" jsonschema:"default=false" only:"type=qdrant|pinecone|weaviate|milvus|chroma"`
	// PersistPath is the folder that chromem keeps its vectors in. Without it, they live in memory.
	PersistPath string `yaml:"persist_path" only:"type=chromem" grant:"filesystem"`
	// Compress makes these files smaller.
	Compress bool `yaml:"compress" jsonschema:"default=false" only:"type=chromem"`
	// Collection is the set of vectors to use.
	Collection string `yaml:"collection"`
}
