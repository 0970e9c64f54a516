// The editor of YAML. It is loaded with the first screen that has one.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { unifiedMergeView } from "@codemirror/merge";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { ConfigProblem } from "./api";
import { describe, find, listKeys, listValues, placeAt, siblings, type JSONSchema } from "./schema";

export interface EditorProps {
  label: string;
  value: string;
  onChange?: (text: string) => void;
  schema?: JSONSchema | undefined;
  // secrets are names that a value may refer to.
  secrets?: string[];
  problems?: { severity: "error" | "warning"; problem: ConfigProblem }[];
  // original is the text that the value is compared with.
  original?: string | undefined;
}

// colours follow the scheme of the page: a style sheet inside of the editor reads the page's variables.
const theme = EditorView.theme({
  "&": { fontSize: "0.85rem", maxHeight: "70vh", backgroundColor: "var(--mantine-color-body)", color: "var(--mantine-color-text)", border: "1px solid var(--mantine-color-default-border)", borderRadius: "4px" },
  "&.cm-focused": { outline: "2px solid var(--mantine-color-blue-filled)" },
  ".cm-scroller": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--mantine-color-text)" },
  ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
  ".cm-gutters": { backgroundColor: "var(--mantine-color-default)", color: "var(--mantine-color-dimmed)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--mantine-color-default-hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--mantine-color-blue-light)" },
  ".cm-tooltip": { backgroundColor: "var(--mantine-color-body)", color: "var(--mantine-color-text)", border: "1px solid var(--mantine-color-default-border)", maxWidth: "34rem" },
  ".cm-tooltip-hover": { padding: "0.35rem 0.6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--mantine-color-blue-filled)", color: "#fff" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.8" },
  ".cm-changedLine": { backgroundColor: "color-mix(in srgb, var(--mantine-color-teal-filled) 14%, transparent) !important" },
  ".cm-deletedChunk": { backgroundColor: "color-mix(in srgb, var(--mantine-color-red-filled) 14%, transparent)" },
  ".cm-collapsedLines": { background: "var(--mantine-color-default-hover)", color: "var(--mantine-color-text)" },
  // The library's ornament is in few fonts.
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: '""' },
  ".cm-panels": { backgroundColor: "var(--mantine-color-default)", color: "var(--mantine-color-text)" },
});

// The contrast of each colour with the page is at least 4.5 in both schemes.
const highlighting = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "light-dark(#0b5cad, #74b5f5)" },
  { tag: [tags.string, tags.special(tags.string)], color: "light-dark(#1a6b2f, #7fd494)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "light-dark(#8a3b00, #f0b072)" },
  { tag: [tags.comment, tags.lineComment], color: "light-dark(#5c6670, #a0a8b0)", fontStyle: "italic" },
]);

// complete offers keys and values at the cursor.
function complete(schema: JSONSchema, secrets: string[]) {
  return (context: CompletionContext): CompletionResult | null => {
    const { state, pos } = context;
    const line = state.doc.lineAt(pos);
    const lines = state.doc.toString().split("\n");
    const column = pos - line.from;
    const before = line.text.slice(0, column);
    if (before.includes(" #") || before.trimStart().startsWith("#")) return null;
    const word = /[\w.$\{\}-]*$/.exec(before)?.[0] ?? "";
    if (!word && !context.explicit && !/(:|-) $/.test(before)) return null;
    const { path, key, inValue } = placeAt(lines, line.number - 1, column);
    const item = /-\s+[\w.$\{\}-]*$/.test(before);
    // After "- " a value may stand, or the first key of an object.
    const values = inValue ? listValues(schema, [...path, key], lines, secrets) : item ? listValues(schema, path, lines, secrets) : [];
    const keys = inValue ? [] : listKeys(schema, path, siblings(lines, line.number - 1));
    const options = [
      ...values.map((o) => ({ ...o, type: "enum" })),
      ...keys.map((o) => ({ ...o, type: "property" })),
    ];
    return options.length > 0 ? { from: pos - word.length, options, validFor: /^[\w.$\{\}-]*$/ } : null;
  };
}

// explain shows the description of the key below the pointer.
function explain(schema: JSONSchema) {
  return hoverTooltip((view, pos) => {
    const line = view.state.doc.lineAt(pos);
    const { path, key } = placeAt(view.state.doc.toString().split("\n"), line.number - 1, 0);
    const at = key ? line.text.indexOf(key) : -1;
    if (at < 0 || pos < line.from + at || pos > line.from + at + key.length) return null;
    const text = describe(find(schema, [...path, key]));
    if (!text) return null;
    return {
      pos: line.from + at,
      end: line.from + at + key.length,
      above: true,
      create: () => {
        const dom = document.createElement("div");
        dom.textContent = text;
        return { dom };
      },
    };
  });
}

function diagnose(state: EditorState, problems: NonNullable<EditorProps["problems"]>): Diagnostic[] {
  // What has no position is in the list below the text alone: a mark at the first line would be a wrong place.
  return problems.filter(({ problem }) => problem.line > 0).map(({ severity, problem: p }) => {
    const line = state.doc.line(Math.min(p.line, state.doc.lines));
    const from = Math.min(line.from + Math.max((p.column || 1) - 1, 0), line.to);
    return { from, to: line.to, severity, message: p.suggestion ? `${p.message}. ${p.suggestion}` : p.message };
  });
}

// replaceLines replaces a selection of several lines by what is typed. Left to Chromium, the lines would be joined as
// elements with inline styles, which the page's policy forbids and reports.
function replaceLines(event: InputEvent, view: EditorView): boolean {
  const { main } = view.state.selection;
  const { doc } = view.state;
  if (event.inputType !== "insertText" || event.data === null || view.composing || view.state.readOnly || doc.lineAt(main.from).number === doc.lineAt(main.to).number) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

// Editor shows YAML. It lives in a shadow root: there its styles are adopted style sheets, which the page's policy
// allows, while in the page they would be inline styles, which it forbids.
export default function Editor({ label, value, onChange, schema, secrets, problems, original }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const parts = useRef({ help: new Compartment(), diff: new Compartment() });
  const changed = useRef(onChange);
  changed.current = onChange;
  const first = useRef({ label, value });

  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const { help, diff } = parts.current;
    const readOnly = !changed.current;
    const extensions: Extension[] = [
      lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(),
      keymap.of([...completionKeymap, ...searchKeymap, ...historyKeymap, ...defaultKeymap, ...(readOnly ? [] : [indentWithTab])]),
      yaml(), syntaxHighlighting(highlighting), theme, lintGutter(), EditorView.lineWrapping,
      EditorState.readOnly.of(readOnly),
      EditorView.contentAttributes.of({ "aria-label": first.current.label, spellcheck: "false", tabindex: "0" }),
      EditorView.updateListener.of((u) => u.docChanged && changed.current?.(u.state.doc.toString())),
      EditorView.domEventHandlers({ beforeinput: replaceLines }),
      help.of([]), diff.of([]),
    ];
    const created = new EditorView({ doc: first.current.value, extensions, parent: root, root });
    view.current = created;
    return () => {
      created.destroy();
      view.current = null;
    };
  }, []);

  useEffect(() => {
    const v = view.current!;
    if (v.state.doc.toString() !== value) v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);
  const names = secrets?.join(" ") ?? "";
  useEffect(() => {
    const help = schema ? [autocompletion({ override: [complete(schema, names ? names.split(" ") : [])] }), explain(schema)] : [];
    view.current!.dispatch({ effects: parts.current.help.reconfigure(help) });
  }, [schema, names]);
  useEffect(() => {
    const diff = original === undefined ? [] : unifiedMergeView({ original, mergeControls: false, gutter: true, collapseUnchanged: { margin: 3, minSize: 6 } });
    view.current!.dispatch({ effects: parts.current.diff.reconfigure(diff) });
  }, [original]);
  useEffect(() => {
    const v = view.current!;
    v.dispatch(setDiagnostics(v.state, diagnose(v.state, problems ?? [])));
  }, [problems]);
  return <div ref={host} className="editor" />;
}
