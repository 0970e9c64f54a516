import { useMantineColorScheme, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { agentId, useAgents } from "./agents";
import { useCaller, useMayCall } from "./caller";
import { screensOf } from "./screens";
import { session, signOut } from "./session";

interface Choice {
  name: string;
  go: () => void;
}

// Palette goes to a screen, an agent, a task or an app by a few letters of its name. It is a dialog of the browser, which
// keeps the focus inside, closes by Escape and gives the focus back.
export default function Palette({ onClose }: { onClose: () => void }) {
  const who = session.use();
  const navigate = useNavigate();
  const agents = useAgents();
  const caller = useCaller();
  const mayCall = useMayCall();
  const { setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);

  const typed = text.trim();
  const all: Choice[] = [
    ...screensOf(who, caller.data).map((s) => ({ name: s.name, go: () => void navigate({ to: s.to }) })),
    ...(agents.data?.agents.map(agentId) ?? []).flatMap((agent) => [
      ...(mayCall(agent) ? [{ name: `Try ${agent}`, go: () => void navigate({ to: "/playground", search: { agent } }) }] : []),
      { name: `Tasks of ${agent}`, go: () => void navigate({ to: "/tasks", search: { agent } }) },
    ]),
    ...(who?.operator ? [{ name: "New app", go: () => void navigate({ to: "/apps/new" }) }] : []),
    { name: "Light colours", go: () => setColorScheme("light") },
    { name: "Dark colours", go: () => setColorScheme("dark") },
    { name: "Sign out", go: signOut },
  ];
  // Letters of a name in their order are enough.
  const fits = (name: string) => {
    let at = 0;
    for (const c of name.toLowerCase()) if (c === typed.toLowerCase()[at]) at++;
    return at >= typed.length;
  };
  const found = all.filter((c) => fits(c.name)).slice(0, 12);
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(typed) && !who?.operator) found.unshift({ name: `Task ${typed}`, go: () => void navigate({ to: "/tasks/$task", params: { task: typed } }) });
  if (/^[a-z0-9-]+$/.test(typed) && who?.operator) found.push({ name: `App ${typed}`, go: () => void navigate({ to: "/apps/$app", params: { app: typed } }) });
  const now = Math.min(chosen, found.length - 1);
  const take = (c: Choice | undefined) => {
    if (!c) return;
    onClose();
    c.go();
  };
  return (
    <dialog ref={dialog} className="palette" aria-label="Go to" onClose={onClose} onClick={(e) => e.target === dialog.current && onClose()}>
      <TextInput
        aria-label="Where to"
        placeholder="A screen, an agent, a task's id"
        role="combobox"
        aria-expanded
        aria-controls="palette-choices"
        aria-activedescendant={found.length > 0 ? `palette-${now}` : ""}
        data-autofocus
        autoFocus
        value={text}
        onChange={(e) => {
          setText(e.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(e) => {
          if (e.key === "Enter") take(found[now]);
          else if (e.key === "ArrowDown") setChosen(Math.min(now + 1, found.length - 1));
          else if (e.key === "ArrowUp") setChosen(Math.max(now - 1, 0));
          else return;
          e.preventDefault();
        }}
      />
      <ul id="palette-choices" role="listbox" aria-label="Choices">
        {found.map((c, i) => (
          <li key={c.name} id={`palette-${i}`} role="option" aria-selected={i === now} onClick={() => take(c)}>
            {c.name}
          </li>
        ))}
      </ul>
    </dialog>
  );
}
