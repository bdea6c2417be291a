package xdp
import ("testing";"github.com/cilium/ebpf";"fmt";"os";"time";"strings")
func TestZZ(t *testing.T){
 file:=os.Getenv("ZZ")
 spec,err:=ebpf.LoadCollectionSpec(file); if err!=nil{t.Fatal(err)}
 for _,m:=range spec.Maps { if m.MaxEntries==1 && m.Type!=ebpf.RingBuf && !strings.HasPrefix(m.Name,".") {m.MaxEntries=64}}
 for n,v:=range spec.Variables { if s:=os.Getenv("ZZF"); s!="" && strings.HasPrefix(n,"feature_") { x:=uint8(0); if strings.Contains(s,strings.TrimPrefix(n,"feature_")){x=1}; v.Set(x)}}
 begin:=time.Now()
 c,err:=ebpf.NewCollectionWithOptions(spec,ebpf.CollectionOptions{Programs:ebpf.ProgramOptions{LogLevel:ebpf.LogLevelStats, LogSizeStart: 1<<24}})
 fmt.Println(time.Since(begin))
 if err!=nil{ s:=fmt.Sprintf("%+v",err); if len(s)>6000{s=s[len(s)-6000:]}; t.Fatal(s)}
 for _,p:=range c.Programs{ fmt.Println(p.VerifierLog) }
}
