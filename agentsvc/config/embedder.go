package config

// Embedder turns text into vectors.
type Embedder struct {
	// Provider is the vendor.
	Provider string `yaml:"provider" jsonschema:"enum=openai,enum=ollama,enum=cohere,default=ollama"`
	// Model is the vendor's name of the model. Without it, the vendor's usual one.
	Model string `yaml:"model"`
	// APIKey is the vendor's key.
	APIKey string `yaml:"api_key" secret:"true"`
	// BaseURL is the address of the API, where it is not the vendor's own.
	BaseURL string `yaml:"base_url"`
	// Dimension is the length of the vectors. Without it, it is asked for.
	Dimension int `yaml:"dimension" jsonschema:"minimum=0"`
	// Timeout is how long one request may take, in seconds.
	Timeout int `yaml:"timeout" jsonschema:"minimum=1,default=30"`
	// BatchSize is how many texts go into one request.
	BatchSize int `yaml:"batch_size" jsonschema:"minimum=1,default=100"`
	// InputType tells cohere what the text is.
	InputType string `yaml:"input_type" only:"provider=cohere"`
	// OutputDimension asks cohere for vectors of this length.
	OutputDimension int `yaml:"output_dimension" jsonschema:"minimum=0" only:"provider=cohere"`
	// Truncate tells cohere which end of a text that is too long to cut.
	Truncate string `yaml:"truncate" only:"provider=cohere"`
}
