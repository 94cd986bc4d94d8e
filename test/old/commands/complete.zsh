#!/usr/bin/env zsh
# complete.zsh FOLDER LINE…: what zsh offers for each line, with the functions of a folder; a line "> LINE", then a word a line.
# A shell on a terminal of its own is asked, because completion lives in the line editor.
zmodload zsh/zpty || exit 1
folder=$1
shift
cd "$folder"
zpty shell zsh -f -i
zpty -w shell "PROMPT= RPROMPT=; stty -echo columns 200; fpath=(${(q)folder} \$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=0"
zpty -w shell 'zstyle ":completion:*" insert-tab false; zstyle ":completion:*" verbose no'
# Every candidate passes here, and those that do not fit the word are left out by the builtin itself.
zpty -w shell 'compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
  typeset -a hits
  builtin compadd -A hits "$@"
  local hit; for hit in $hits; do print -r -- "= $hit"; done
}'
zpty -w shell 'asked() { print -r -- "BEGIN"; zle complete-word; print -r -- "END"; zle kill-whole-line }; zle -N asked; bindkey "^I" asked'
zpty -w shell 'print -r -- RE""ADY'
zpty -r shell heard '*READY*'
for line in "$@"; do
  print -r -- "> $line"
  zpty -n -w shell "$line"$'\t'
  zpty -r shell heard $'*END*'
  print -r -- "$heard" | tr -d '\r' | sed -n 's/^.*= //p'
done
zpty -d shell
