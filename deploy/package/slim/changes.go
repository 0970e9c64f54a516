package main

// changedFiles are the files with what is changed in them.
var changedFiles = []changedFile{
	// The command line calls methods of commands by name. As constants the names let the linker know which.
	{
		module: "github.com/alecthomas/kong", path: "callbacks.go",
		changes: []change{
			{
				"	method := value.MethodByName(name)\n	if !method.IsValid() {\n		if value.CanAddr() {\n			method = value.Addr().MethodByName(name)\n",
				"	method := methodOf(value, name)\n	if !method.IsValid() {\n		if value.CanAddr() {\n			method = methodOf(value.Addr(), name)\n",
			},
			{"		return value.MethodByName(name)\n", "		return methodOf(value, name)\n"},
			{"		return value.Addr().MethodByName(name)\n", "		return methodOf(value.Addr(), name)\n"},
			{"	method, ok := t.MethodByName(name)\n", "	method, ok := methodOfType(t, name)\n"},
		},
		addition: `
func methodOf(v reflect.Value, name string) reflect.Value {
	switch name {
	case "BeforeReset":
		return v.MethodByName("BeforeReset")
	case "BeforeResolve":
		return v.MethodByName("BeforeResolve")
	case "BeforeApply":
		return v.MethodByName("BeforeApply")
	case "AfterApply":
		return v.MethodByName("AfterApply")
	case "AfterRun":
		return v.MethodByName("AfterRun")
	case "Run":
		return v.MethodByName("Run")
	}
	panic("kong: no constant for the method " + name)
}

func methodOfType(t reflect.Type, name string) (reflect.Method, bool) {
	switch name {
	case "BeforeReset":
		return t.MethodByName("BeforeReset")
	case "BeforeResolve":
		return t.MethodByName("BeforeResolve")
	case "BeforeApply":
		return t.MethodByName("BeforeApply")
	case "AfterApply":
		return t.MethodByName("AfterApply")
	case "AfterRun":
		return t.MethodByName("AfterRun")
	case "Run":
		return t.MethodByName("Run")
	}
	panic("kong: no constant for the method " + name)
}
`,
	},
	// A command may have methods Provide... that make arguments of Run. Stoa's have none (TestNoProvider).
	{
		module: "github.com/alecthomas/kong", path: "context.go",
		changes: []change{
			{`			for _, p := range []reflect.Value{p.Target, p.Target.Addr()} {
				t := p.Type()
				for i := 0; i < p.NumMethod(); i++ {
					methodt := t.Method(i)
					if strings.HasPrefix(methodt.Name, "Provide") {
						method := p.Method(i)
						if err := methodBinds.addProvider(method.Interface(), false /* singleton */); err != nil {
							return fmt.Errorf("%s.%s: %w", t.Name(), methodt.Name, err)
						}
					}
				}
			}
`, ""},
		},
	},
	// A matcher of roles could call methods of its arguments. Stoa's arguments are strings and have none.
	{
		module: "github.com/casbin/govaluate", path: "evaluationStage.go",
		changes: []change{
			{"				method = coreValue.MethodByName(pair[i])\n", ""},
			{"						method = corePtrVal.MethodByName(pair[i])\n", ""},
		},
	},
	// Google's client has a client for its own tests, which prints differences; it prints interfaces without their methods.
	{
		module: "github.com/google/go-cmp", path: "cmp/internal/value/name.go",
		changes: []change{{"			m := t.Method(i)\n", "			var m reflect.Method\n			m.Type = reflect.TypeOf(func() {})\n"}},
	},
	// A template could call methods of its values. Those of tenants are what JSON can have, and texts; those of invoices
	// have fields only.
	{
		path: "src/text/template/exec.go",
		changes: []change{{`	if method := ptr.MethodByName(fieldName); method.IsValid() {
		return s.evalCall(dot, method, false, node, fieldName, args, final)
	}
`, ""}},
	},
	// The function that encodes a request is compiled once, and not once for each of some thousand types.
	{
		module: "github.com/openai/openai-go/v3", path: "packages/param/encoder.go",
		changes: []change{{"	return MarshalWithExtras(f, underlying, f.extraFields())\n", "	return MarshalWithExtras(ParamStruct(f), underlying, f.extraFields())\n"}},
	},
}
