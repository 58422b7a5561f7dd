# zsh -f zsh_offers.zsh SCRIPT LINE
# Prints what Tab offers at the end of LINE, one per line, and then "line:" with what the line has become. SCRIPT defines the
# completion. A zsh completes on a terminal only, so this one sources itself in another that has one.
if [[ $1 != --inside ]]; then
  zmodload zsh/zpty || exit 2
  zpty shell 'TERM=dumb COLUMNS=500 zsh -f -i'
  zpty -w shell "source ${(q)0:a} --inside ${(q)1}"
  while zpty -r shell text; do [[ $text == ready* ]] && break; done
  zpty -w -n shell "$2"$'\t\x18'
  while zpty -r shell text; do
    [[ $text == *'offered:'* ]] && print -r -- "${${text##*offered:}%%$'\r'*}"
    [[ $text == *'line:'* ]] && { print -r -- "line:${${text##*line:}%%$'\r'*}"; break; }
  done
  exit 0
fi

PROMPT=
unsetopt zle_bracketed_paste
autoload -U compinit && compinit -u -D
source $2
# What completion adds, instead of how the terminal shows it.
compadd() {
  # Calls that only ask for matches.
  [[ " ${@[1,(i)--]} " == *' '-(O|A|D)' '* ]] && { builtin compadd "$@"; return; }
  local -a offered
  builtin compadd -O offered "$@"
  local word
  for word in $offered; do print -r -- "offered:$word"; done
  builtin compadd "$@"
}
show-line() { print -r -- "line:$BUFFER|" }
zle -N show-line
bindkey '^I' complete-word '^X' show-line
print ready
