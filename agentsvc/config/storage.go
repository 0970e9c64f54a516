package config

// Storage says where tasks, sessions, memory and checkpoints are kept.
type Storage struct {
	// Tasks says where tasks are kept.
	Tasks Backend `yaml:"tasks"`
	// Sessions says where conversations are kept.
	Sessions Backend `yaml:"sessions"`
	// Memory lets the llm agents recall what was said in earlier conversations with the same user. Without it, they
	// recall nothing.
	Memory *Memory `yaml:"memory"`
	// Checkpoint says when the state of a running task is saved besides its journal.
	Checkpoint Checkpoint `yaml:"checkpoint"`
}

// Backend is a place to keep tasks or sessions.
type Backend struct {
	// Backend is the kind of place: a SQL database, or memory that is lost on restart.
	Backend string `yaml:"backend" jsonschema:"enum=sql,enum=inmemory,default=sql"`
	// Database is the database to use, of the app's own: for sessions only. Without it, it is the server's own.
	Database string `yaml:"database" ref:"databases" only:"backend=sql"`
}

// Memory lets agents recall what was said in earlier conversations with the same user.
type Memory struct {
	// Backend is how memories are found: by their words or, with an embedder, by their meaning.
	Backend string `yaml:"backend" jsonschema:"enum=keyword,enum=vector,default=keyword"`
	// Embedder makes the vectors of memories.
	Embedder string `yaml:"embedder" ref:"embedders" only:"backend=vector"`
	// VectorProvider says where the vectors are looked up. Without it, in memory; the database keeps them all.
	VectorProvider *VectorProvider `yaml:"vector_provider" only:"backend=vector"`
}

// VectorProvider keeps the vectors of memories.
type VectorProvider struct {
	// Type is the kind of store.
	Type string `yaml:"type" jsonschema:"enum=chromem,default=chromem"`
	// Chromem configures it.
	Chromem Chromem `yaml:"chromem"`
}

// Chromem configures a vector store that lives inside this process.
type Chromem struct {
	// PersistPath is the folder that the vectors are kept in as well, so that they need not be read from the database
	// after a restart. It stands in the operator's file only.
	PersistPath string `yaml:"persist_path" grant:"filesystem"`
}

// check holds a promise: when an app is deleted, nothing of it is left, on no machine that ever ran it.
func (x *Chromem) check(c *checks, s spot) {
	if c.Tenant && x.PersistPath != "" && c.granted("filesystem") {
		c.refuse(s.child("persist_path"), "stands in the operator's file only: the vectors of an app live in the database and in memory")
	}
}

// Checkpoint says when the state of a running task is saved besides its journal.
type Checkpoint struct {
	// Enabled turns checkpoints on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// Strategy is when to save: at events, every so many iterations, or both.
	Strategy string `yaml:"strategy" jsonschema:"enum=event,enum=interval,enum=hybrid,default=event"`
	// Interval is after how many iterations to save; 0 is never.
	Interval int `yaml:"interval" jsonschema:"minimum=0,default=0"`
	// AfterTools saves after every tool call.
	AfterTools bool `yaml:"after_tools" jsonschema:"default=false"`
	// BeforeLLM saves before every call of the model.
	BeforeLLM bool `yaml:"before_llm" jsonschema:"default=false"`
	// Recovery says what becomes of running tasks after a restart.
	Recovery Recovery `yaml:"recovery"`
}

// Recovery says what becomes of running tasks after a restart.
type Recovery struct {
	// AutoResume lets running tasks go on. They do so too where nothing is written; written as false, they fail.
	AutoResume *bool `yaml:"auto_resume"`
	// AutoResumeHITL lets tasks that wait for a human go on.
	AutoResumeHITL bool `yaml:"auto_resume_hitl" jsonschema:"default=false"`
	// Timeout is how old a checkpoint may be, in seconds.
	Timeout int `yaml:"timeout" jsonschema:"minimum=1,default=3600"`
}

// check keeps tasks where their queue is.
func (x *Storage) check(c *checks, s spot) {
	if x.Tasks.Database != "" {
		c.problem(s.child("tasks").child("database"), "cannot be chosen: tasks, their events and runs are kept in the server's own database; storage.sessions.database may be the app's")
	}
}

func (b *Backend) check(c *checks, s spot) {
	c.notMySQL(s.child("database"), b.Database)
}

func (m *Memory) check(c *checks, s spot) {
	if m.Backend == "vector" && !c.doc.has(s.value, "embedder") {
		c.problem(s.child("backend"), "needs an embedder beside it")
	}
}
