// Completion and descriptions from the JSON Schema of configurations. The place in a text is found by indentation, since
// a text that is being written is rarely valid YAML.

export interface JSONSchema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, JSONSchema>;
  additionalProperties?: boolean | JSONSchema;
  items?: JSONSchema;
  anyOf?: JSONSchema[];
  oneOf?: JSONSchema[];
  allOf?: JSONSchema[];
  required?: string[];
  definitions?: Record<string, JSONSchema>;
}

// Place is where a cursor stands: below the keys of path ("*" = an item of a list). key is the key on its line, "" =
// none yet; inValue = the cursor is after the key's colon.
export interface Place {
  path: string[];
  key: string;
  inValue: boolean;
}

const keyPattern = /^(\s*(?:-\s+)*)(?:(["']?)([^\s"'#:{[][^"':]*?)\2\s*:(?=\s|$))?/;

interface Line {
  indent: number;
  // dashes are the columns of the "-" before the key.
  dashes: number[];
  key: string;
}

function readLine(text: string): Line {
  const [, lead = "", , key = ""] = keyPattern.exec(text) ?? [];
  const dashes = [...lead].flatMap((c, i) => (c === "-" ? [i] : []));
  return { indent: lead.length, dashes, key };
}

const isBlank = (line: string) => /^\s*(#|$)/.test(line);

// placeAt returns the place of a column of a line of the text.
export function placeAt(lines: string[], row: number, column: number): Place {
  const now = readLine(lines[row] ?? "");
  const colon = now.key ? (lines[row] ?? "").indexOf(":", now.indent + now.key.length) : -1;
  const path: string[] = [];
  // A key belongs to the nearest line above with less indentation; a dash opens a list below such a line, also one with
  // the same indentation as the key above it.
  let within = now.indent;
  for (const dash of now.dashes.toReversed()) {
    path.unshift("*");
    within = dash + 0.5;
  }
  for (let i = row - 1; i >= 0 && within > 0; i--) {
    const line = lines[i] ?? "";
    if (isBlank(line)) continue;
    const above = readLine(line);
    if (above.indent < within && above.key) {
      path.unshift(above.key);
      within = above.indent;
    }
    for (const dash of above.dashes.toReversed()) {
      if (dash < within && above.indent <= within) {
        path.unshift("*");
        within = dash + 0.5;
      }
    }
  }
  return { path, key: now.key, inValue: colon >= 0 && column > colon };
}

// expand returns a schema and all those that it refers to or combines.
function expand(root: JSONSchema, schema: JSONSchema, depth = 0): JSONSchema[] {
  if (depth > 8) return [];
  const target = schema.$ref ? root.definitions?.[schema.$ref.replace("#/definitions/", "")] : undefined;
  const parts = [...(target ? [target] : []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...parts.flatMap((p) => expand(root, p, depth + 1))];
}

// find returns the schemas of the values at a path.
export function find(root: JSONSchema, path: string[]): JSONSchema[] {
  let found = expand(root, root);
  for (const key of path) {
    found = found.flatMap((s) => {
      const next: JSONSchema[] = [];
      if (key === "*" && s.items) next.push(s.items);
      const own = s.properties?.[key];
      if (own) next.push(own);
      else if (key !== "*" && typeof s.additionalProperties === "object") next.push(s.additionalProperties);
      return next.flatMap((n) => expand(root, n));
    });
  }
  return found;
}

// Option is a completion.
export interface Option {
  label: string;
  detail: string;
  info: string;
  // apply is the text that is inserted.
  apply: string;
}

// describe returns the description of the values at a path, "" if there is none.
export function describe(schemas: JSONSchema[]): string {
  const text = schemas.find((s) => s.description)?.description ?? "";
  const usual = schemas.find((s) => s.default !== undefined)?.default;
  return usual === undefined ? text : `${text} Default: ${JSON.stringify(usual)}.`;
}

function typeOf(schemas: JSONSchema[]): string {
  const types = new Set(schemas.flatMap((s) => s.type ?? []));
  // A text may stand everywhere, as a reference to a variable.
  if (types.size > 1) types.delete("string");
  return [...types].join(" or ");
}

// listKeys returns the keys that an object at a path may have, without those that it has.
export function listKeys(root: JSONSchema, path: string[], has: Set<string>): Option[] {
  const names = new Map<string, JSONSchema[]>();
  for (const s of find(root, path)) {
    for (const [name, property] of Object.entries(s.properties ?? {})) names.set(name, expand(root, property));
  }
  return [...names].flatMap(([label, schemas]) => {
    if (has.has(label)) return [];
    const type = typeOf(schemas);
    return [{ label, detail: type, info: describe(schemas), apply: `${label}:${type === "object" || type === "array" ? "" : " "}` }];
  });
}

// references are the keys whose values name entries of another part of the configuration.
const references: Record<string, string> = {
  llm: "llms",
  tools: "tools",
  sub_agents: "agents",
  agent_tools: "agents",
  agent: "agents",
  guardrails: "guardrails",
  document_stores: "document_stores",
  embedder: "embedders",
  database: "databases",
  vector_store: "vector_stores",
};

// listValues returns what may stand at a path: values of an enumeration, and names of entries.
export function listValues(root: JSONSchema, path: string[], lines: string[], secrets: string[]): Option[] {
  const schemas = find(root, path);
  const values = schemas.flatMap((s) => [...(s.enum ?? []), ...(s.const === undefined ? [] : [s.const])]);
  if (schemas.some((s) => s.type === "boolean" || (Array.isArray(s.type) && s.type.includes("boolean")))) values.push(true, false);
  const options = values.map((v) => ({ label: String(v), detail: "", info: "", apply: String(v) }));
  const part = references[path.findLast((key) => key !== "*") ?? ""];
  // At the top these keys are the parts themselves.
  if (part && path.length > 1) options.push(...keysBelow(lines, part).map((label) => ({ label, detail: `of ${part}`, info: "", apply: label })));
  options.push(...secrets.map((name) => ({ label: "${" + name + "}", detail: "secret", info: "", apply: "${" + name + "}" })));
  return options;
}

// keysBelow returns the keys directly below a key at the top.
function keysBelow(lines: string[], top: string): string[] {
  const found: string[] = [];
  let inside = false;
  let indent = 0;
  for (const line of lines) {
    if (isBlank(line)) continue;
    const read = readLine(line);
    if (read.indent === 0) {
      inside = read.key === top;
      indent = 0;
    } else if (inside && read.key && (indent === 0 || read.indent === indent)) {
      indent = read.indent;
      found.push(read.key);
    }
  }
  return found;
}

// siblings returns the keys that stand in the same object as a row.
export function siblings(lines: string[], row: number): Set<string> {
  const { indent, dashes } = readLine(lines[row] ?? "");
  const found = new Set<string>();
  // What stands above a dash belongs to the item before.
  for (const step of dashes.length > 0 ? [1] : [-1, 1]) {
    for (let i = row + step; i >= 0 && i < lines.length; i += step) {
      const line = lines[i] ?? "";
      if (isBlank(line)) continue;
      const read = readLine(line);
      if (read.indent < indent || (step > 0 && read.dashes.length > 0 && read.indent <= indent)) break;
      if (read.indent === indent && read.key) found.add(read.key);
      if (read.dashes.length > 0 && read.indent === indent) break;
    }
  }
  return found;
}
